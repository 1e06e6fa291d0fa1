package store

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// TestTheCheckFindsNothingInLifetimesThatTheStoreWrote checks files after random requests.
func TestTheCheckFindsNothingInLifetimesThatTheStoreWrote(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := testOptions(t)
		c := newClock()
		s, err := Open(ctx, c.options(o))
		must(t, err)
		m := &machine{t: rt, tb: t, s: s, clock: c, model: model{map[string]*modelSandbox{}, map[string]bool{}, map[string]string{}}}
		action := func(fn func()) func(*rapid.T) {
			return func(rt *rapid.T) { m.t = rt; c.pass(time.Second); fn() }
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create": action(m.create), "report": action(m.report), "report again": action(m.report), "report once more": action(m.report),
			"pause": action(m.pause), "pause again": action(m.pause), "resume": action(m.resume), "stop": action(m.stop), "delete": action(m.delete),
			"demote": action(m.demote), "pause cleanup": action(m.pauseCleanup), "set timeout": action(m.setTimeout), "expire": action(m.expire),
			"update timeout": action(m.updateTimeout), "clock set back": action(m.setBack), "exec": action(m.exec), "end exec": action(m.endExec),
		})
		must(t, m.s.Close())
		if all := findings(t, o.Path); len(all) > 0 {
			rt.Fatalf("findings:\n%s", strings.Join(all, "\n"))
		}
	})
}

// TestTheCheckFindsWhatNoLifetimeHas: each row has the record, its change, and the finding.
func TestTheCheckFindsWhatNoLifetimeHas(t *testing.T) {
	const pause, run = storev1.RunState_RUN_STATE_PAUSE, storev1.RunState_RUN_STATE_RUN
	for name, row := range map[string]struct {
		id     string
		change func(d *storev1.Desired)
		want   string
	}{
		"a deadline before 1970":           {"ready", func(d *storev1.Desired) { d.DeadlineAt = -1 }, "it names a time before 1970"},
		"a demotion of one that runs":      {"ready", func(d *storev1.Desired) { d.DemotedAt = 1 }, "it is demoted, and no pause is wanted but RUN_STATE_RUN"},
		"a deadline of a stopped one":      {"stopped", func(d *storev1.Desired) { d.DeadlineAt = 1 }, "it is to be stopped, and a deadline is left"},
		"a stopped one that never ends":    {"stopped", func(d *storev1.Desired) { d.DeadlineSet = true }, "it is to be stopped, and a deadline is left"},
		"a paused one that is to run":      {"paused", func(d *storev1.Desired) { d.RunState = run }, "it is SANDBOX_STATE_PAUSED, and the desired state is RUN_STATE_RUN"},
		"a stopped one that is to be held": {"stopped", func(d *storev1.Desired) { d.RunState = pause }, "it is SANDBOX_STATE_STOPPED, and the desired state is RUN_STATE_PAUSE"},
	} {
		s := open(t, testOptions(t))
		makeReady(t, s, "ready")
		makePaused(t, s, "paused")
		situation("stopped")(t, s, "stopped")
		d := proto.CloneOf(get1(t, s, row.id).Desired)
		must(t, s.Close())
		checkDatabase(t, s.o.Path)
		row.change(d)
		change(t, s.o.Path, bucketDesired, row.id, message(t, d))
		if all := findings(t, s.o.Path); len(all) == 0 || all[0] != bucketDesired+"/"+row.id+": "+row.want {
			t.Errorf("%s: %q", name, all)
		}
	}
}
