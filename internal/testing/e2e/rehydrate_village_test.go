//go:build docker

package e2e

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// village is one sandbox of each kind, on a daemon that hardly resyncs.
type village struct {
	*daemon
	ids     map[string]string // by kind
	running *agboxv1.CreateExecResponse
	views   map[string]view
}

func newVillage(t *testing.T) *village {
	t.Helper()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1h\"\n[pause]\nmax_frozen = 1\n")
	v := &village{daemon: d, ids: map[string]string{}}
	for kind, spec := range map[string]*agboxv1.CreateSpec{
		"ready": {
			Labels: map[string]string{"team": "x", "empty": ""}, Envs: map[string]string{"SECRET": "s3cret\nof two lines"}, Timeout: durationpb.New(time.Hour),
			User: "nobody", Command: []string{"sh", "-c", "echo main; while :; do sleep 1; done"}, CpuLimit: 0.5, MemoryLimit: "64MiB", OnTimeout: "pause",
			Gateway: &agboxv1.GatewaySpec{Owner: "alice", Template: "base", Metadata: map[string]string{"k": "v, {w}"}, PrivateTraffic: true},
		},
		"services": {RequiredServices: []*agboxv1.ServiceSpec{web("db", 0)}, OptionalServices: []*agboxv1.ServiceSpec{web("cache", 0)}},
		"frozen":   {Labels: map[string]string{"kind": "frozen"}},
		"demoted":  {},
		"stopped":  {},
		"failed":   {},
	} {
		v.ids[kind] = d.named("box-"+kind, spec)
	}
	for _, id := range v.ids {
		d.await(id, ready)
	}
	d.until(v.ids["ready"], time.Now().Add(2*time.Hour+1234567*time.Nanosecond))
	d.exec(v.ids["frozen"], "sleep", "1000")
	d.asleep(v.ids["demoted"])
	d.asleep(v.ids["frozen"]) // the second one: the first goes down
	d.eventually("the first is demoted", func() error {
		if d.inspect(naming.Primary(v.ids["demoted"])).State.Running || d.sandbox(v.ids["demoted"]).GetDemotedAt() == nil {
			return fmt.Errorf("it runs")
		}
		return nil
	})
	d.halt(v.ids["stopped"])
	d.docker("kill", naming.Primary(v.ids["failed"]))
	d.await(v.ids["failed"], failed)
	return v
}

// work runs execs that end in different ways, and one that goes on, and returns those that have ended.
func (v *village) work() []string {
	v.Helper()
	var ended []string
	for _, script := range []string{"echo well", "echo out; echo err >&2; exit 3", "kill -9 $$"} {
		e := v.exec(v.ids["ready"], "sh", "-c", script)
		v.ended(e.GetExecId())
		ended = append(ended, e.GetExecId())
	}
	v.running = v.exec(v.ids["services"], "sh", "-c", "while [ ! -e /workspace/go ]; do sleep 0.1; done; echo went on; exit 5")
	v.started(v.running)
	return ended
}

// look takes the views, and has what differs between kinds: execs.
func (v *village) look(ended []string) {
	v.Helper()
	v.eventually("the optional service is up", func() error {
		for _, s := range v.sandbox(v.ids["services"]).GetServices() {
			if s.GetState() != "READY" {
				return fmt.Errorf("%v", s)
			}
		}
		return nil
	})
	v.views = map[string]view{}
	for kind, id := range v.ids {
		v.views[kind] = v.viewed(id)
	}
	v.views["ready"] = v.viewed(v.ids["ready"], ended...)
	v.views["services"] = v.viewed(v.ids["services"], v.running.GetExecId())
}

// goesOn ends the exec that ran all the time: that is noticed without a resync.
func (v *village) goesOn() {
	v.Helper()
	v.sh(v.ids["services"], "touch /workspace/go; "+fetch("db"))
	if st := v.ended(v.running.GetExecId()); st.GetExitCode() != 5 || v.read(v.running.GetStdoutLogPath()) != "went on\n" {
		v.Errorf("the exec that ran all the time: %v, it has said %q", st, v.read(v.running.GetStdoutLogPath()))
	}
}

// checksOut has the new database checked, every invariant of it.
func (d *daemon) checksOut() {
	d.Helper()
	d.stop()
	if out, err := d.command("db", "check").CombinedOutput(); err != nil {
		d.Errorf("%v\n%s", err, out)
	}
	d.start()
}

func (v *village) removeAll() {
	v.Helper()
	for _, id := range v.ids {
		v.remove(id)
	}
}
