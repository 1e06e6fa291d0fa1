//go:build docker

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

var prometheusDir = flag.String("prometheus", "", "the directory in which hack/prometheus.sh has put prometheus and promtool; empty: leave that test out")

// prometheus is one that scrapes a daemon every second.
type prometheus struct {
	testing.TB
	address string
}

// scrapedBy starts a Prometheus with the repository's alerts, until the test ends.
func scrapedBy(d *daemon) *prometheus {
	d.Helper()
	rules := must(filepath.Abs("../../../config/prometheus/alerts.yml"))(d)
	p, dir := &prometheus{d, freeAddress(d)}, d.TempDir()
	conf := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n"+
		"- job_name: agboxd\n  static_configs: [{targets: [%q]}]\n", rules, d.http)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(conf), 0o600); err != nil {
		d.Fatal(err)
	}
	log := &logFile{}
	cmd := exec.Command(filepath.Join(*prometheusDir, "prometheus"), "--config.file="+dir+"/prometheus.yml", "--storage.tsdb.path="+dir+"/data",
		"--web.listen-address="+p.address, "--web.console.templates="+dir, "--web.console.libraries="+dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if d.Failed() {
			d.Logf("log of prometheus:\n%s", log.tail(4000))
		}
	})
	return p
}

// get calls the API of Prometheus.
func (p *prometheus) get(path string, into any) error {
	resp, err := http.Get("http://" + p.address + "/api/v1/" + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return nil
}

// results returns how many series a query has.
func (p *prometheus) results(query string) (int, error) {
	var data struct{ Result []any }
	err := p.get("query?query="+url.QueryEscape(query), &data)
	return len(data.Result), err
}

type rule struct {
	Name, Query, Health, LastError, State string
}

func (p *prometheus) rules() ([]rule, error) {
	var data struct{ Groups []struct{ Rules []rule } }
	if err := p.get("rules", &data); err != nil || len(data.Groups) == 0 {
		return nil, err
	}
	return data.Groups[0].Rules, nil
}

// TestPrometheus runs the alerts and the dashboard of config/prometheus in a Prometheus that scrapes a daemon.
func TestPrometheus(t *testing.T) {
	if *prometheusDir == "" {
		t.Skip("needs Prometheus: make test-prometheus unpacks Debian's and gives its directory")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"check", "config", "prometheus.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.Command(filepath.Join(*prometheusDir, "promtool"), args...)
		cmd.Dir = "../../../config/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	d := scrapable(t, "")
	box := d.named("web", &agboxv1.CreateSpec{MemoryLimit: "64MiB"})
	d.await(box, ready)
	d.sh(box, "true")
	p := scrapedBy(d)
	d.eventually("Prometheus has scraped the daemon", func() error {
		n, err := p.results("agboxd_sandbox_pids{sandbox=\"web\"}")
		if err == nil && n != 1 {
			err = fmt.Errorf("%d sandboxes", n)
		}
		return err
	})
	queries := map[string]string{}
	d.eventually("each rule is evaluated, and none fires", func() error {
		rules, err := p.rules()
		if err != nil || len(rules) < 15 {
			return fmt.Errorf("%d rules: %w", len(rules), err)
		}
		for _, r := range rules {
			queries["alert "+r.Name] = r.Query
			if r.Health != "ok" || r.State != "inactive" {
				return fmt.Errorf("%+v", r)
			}
		}
		return nil
	})
	for name, expr := range dashboard(t) {
		queries[name] = expr
		if _, err := p.results(expr); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for where, expr := range queries {
		for _, name := range regexp.MustCompile(`\b(agboxd|workqueue)_[a-z_]+`).FindAllString(expr, -1) {
			if n, err := p.results(name); n == 0 || err != nil {
				t.Errorf("%s: the daemon has no %s: %v", where, name, err)
			}
		}
	}
	d.kill()
	d.eventually("an alert is pending", func() error {
		rules, err := p.rules()
		for _, r := range rules {
			if r.Name == "AgboxDown" && r.State != "inactive" {
				return nil
			}
		}
		return fmt.Errorf("%+v: %w", rules, err)
	})
	d.start()
}

// dashboard returns the expressions of Grafana's dashboard as Grafana would send them, by panel.
func dashboard(t *testing.T) map[string]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, RefID string }
		}
	}
	raw := must(os.ReadFile("../../../config/prometheus/grafana-dashboard.json"))(t)
	if err := json.Unmarshal(raw, &board); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "10s", "$instance", ".*")
	exprs := map[string]string{}
	for _, p := range board.Panels {
		for _, one := range p.Targets {
			exprs["panel "+p.Title+" "+one.RefID] = variables.Replace(one.Expr)
		}
	}
	return exprs
}
