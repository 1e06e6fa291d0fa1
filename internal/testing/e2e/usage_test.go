//go:build docker

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// scrape returns the values of /metrics by their names with labels.
func (d *daemon) scrape() map[string]float64 {
	d.Helper()
	resp, err := http.Get("http://" + d.http + "/metrics")
	if err != nil {
		d.Fatal(err)
	}
	defer resp.Body.Close()
	body := must(io.ReadAll(resp.Body))(d)
	values := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		at := strings.LastIndex(line, " ")
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			d.Fatalf("metric %q: %v", line, err)
		}
		values[line[:at]] = value
	}
	return values
}

// scrapable starts a daemon whose metrics can be read.
func scrapable(t *testing.T, conf string) *daemon {
	t.Helper()
	d := prepared(t, t.TempDir())
	d.conf, d.http = conf, freeAddress(t)
	d.start()
	d.wantPage("/healthz", http.StatusOK)
	return d
}

func TestTheUsageOfSandboxesIsMeasured(t *testing.T) {
	t.Parallel()
	d := scrapable(t, "[metrics]\nmax_sandboxes = 2\n")
	box := d.named("web", &agboxv1.CreateSpec{MemoryLimit: "256MiB", PidsLimit: 100})
	other := d.named("other", &agboxv1.CreateSpec{})
	d.await(box, ready)
	d.await(other, ready)
	of := func(name string) string {
		return fmt.Sprintf(`agboxd_sandbox_%s{sandbox="web",sandbox_id="%s"}`, name, box)
	}
	before := d.scrape()
	for name, least := range map[string]float64{"cpu_seconds_total": 1e-6, "memory_bytes": 1 << 16, "memory_limit_bytes": 256 << 20, "pids": 1} {
		if got, ok := before[of(name)]; got < least || !ok {
			t.Errorf("%s is %v, there %t, want at least %v", of(name), got, ok, least)
		}
	}
	// 64 MiB of memory, a second of CPU, and a process that stays.
	d.sh(box, `head -c 67108864 /dev/zero > /dev/shm/used; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 300 & echo done`)
	after := d.scrape()
	if used := after[of("cpu_seconds_total")] - before[of("cpu_seconds_total")]; used < .05 || used > 60 {
		t.Errorf("it used %v s of CPU", used)
	}
	if used := after[of("memory_bytes")] - before[of("memory_bytes")]; used < 60<<20 || used > 200<<20 {
		t.Errorf("it used %v more bytes of memory", used)
	}
	stats := must(d.GetStats(d.ctx(), &agboxv1.GetStatsRequest{SandboxIds: []string{box}}))(t).GetSandboxes()[0].GetContainers()
	if len(stats) != 1 || stats[0].GetMemoryLimitBytes() != 256<<20 || stats[0].GetPidsLimit() != 100 || stats[0].GetCpuTime().AsDuration().Seconds() < after[of("cpu_seconds_total")] {
		t.Errorf("stats: %v", stats)
	}

	// A daemon that has just started knows it all too, without the engine.
	d.restart()
	d.wantPage("/healthz", http.StatusOK)
	const inspections = `agboxd_engine_calls_total{op="inspect_container",result="ok"}`
	was := d.scrape()[inspections]
	const scrapes = 20
	for range scrapes {
		if got := d.scrape(); got[of("cpu_seconds_total")] < after[of("cpu_seconds_total")] {
			t.Errorf("after a restart: %v", got[of("cpu_seconds_total")])
		}
	}
	if now := d.scrape()[inspections]; now-was >= scrapes { // passes inspect some, too
		t.Errorf("%v containers were inspected during %d scrapes", now-was, scrapes)
	}
	if n := d.scrape()[`agboxd_execs_total{state="finished"}`]; n != 0 {
		t.Errorf("execs of an earlier daemon: %v", n)
	}
	d.sh(box, "true")
	d.eventually("the exec is counted", func() error {
		if got := d.scrape(); got[`agboxd_execs_total{state="finished"}`] != 1 || got["agboxd_exec_seconds_count"] != 1 {
			return fmt.Errorf("%v", got["agboxd_exec_seconds_count"])
		}
		return nil
	})

	// A third one is too many; a stopped one is no more among them.
	third := d.named("third", &agboxv1.CreateSpec{})
	d.await(third, ready)
	if got := d.scrape(); got["agboxd_sandbox_metrics_omitted"] != 3 || got[of("pids")] != 0 {
		t.Errorf("three of at most two: omitted %v, pids %v", got["agboxd_sandbox_metrics_omitted"], got[of("pids")])
	}
	d.halt(third)
	d.halt(other)
	if got := d.scrape(); got["agboxd_sandbox_metrics_omitted"] != 0 || got[of("pids")] < 1 || strings.Contains(fmt.Sprint(got), other) {
		t.Errorf("one of at most two: omitted %v, pids %v", got["agboxd_sandbox_metrics_omitted"], got[of("pids")])
	}
}
