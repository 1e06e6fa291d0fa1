//go:build docker

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// The daemon dies at random moments of creates that bring up services, copy files and run hooks, some of them twice.
func TestKilledDuringCreateWithServicesHooksAndCopies(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	tree := t.TempDir()
	for i := range 100 {
		if err := os.WriteFile(filepath.Join(tree, fmt.Sprintf("file%d", i)), []byte("x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const together = 2
	for round := range rounds / together {
		var ids [together]string
		for i := range ids {
			ids[i] = d.create(manyParts(tree))
		}
		d.killSometime(1500 * time.Millisecond)
		if round%2 == 0 {
			d.killSometime(500 * time.Millisecond)
		}
		for _, id := range ids {
			d.await(id, ready)
		}
		d.wantOnly(ids[:]...)
		var wg sync.WaitGroup
		for _, id := range ids {
			d.wantManyParts(id)
			wg.Go(func() { d.remove(id) })
		}
		wg.Wait()
	}
	d.wantOnly()
}

// manyParts is a sandbox of which each part shows whether it was made once.
func manyParts(tree string) *agboxv1.CreateSpec {
	db := web("db", 0)
	db.Healthcheck.Interval = durationpb.New(200 * time.Millisecond)
	db.PostStartOnPrimary = []string{"echo one >>/workspace/hooks; sleep 0.2", "echo two >>/workspace/hooks; rm /workspace/in/file7"}
	return &agboxv1.CreateSpec{
		RequiredServices: []*agboxv1.ServiceSpec{db}, Copies: []*agboxv1.CopySpec{{Source: tree, Target: "/workspace/in"}},
	}
}

func (d *daemon) wantManyParts(id string) {
	d.Helper()
	d.wantRows(id, "ACCEPTED PREPARING SERVICE_READY(db) READY")
	if got := d.sh(id, "cat /workspace/hooks; ls /workspace/in | wc -l; "+fetch("db")); got != "one\ntwo\n99\ndb\n" {
		d.Errorf("got %q", got)
	}
}

// wantOnly checks that the engine holds the two containers and the one network of each of these sandboxes and nothing else
// of the daemon's.
func (d *daemon) wantOnly(ids ...string) {
	d.Helper()
	label := "label=" + naming.Instance + "=" + strings.TrimSpace(d.read(d.home+"/data/agents-sandbox/instance"))
	containers := strings.Fields(d.docker("ps", "-aq", "--filter", label))
	networks := strings.Fields(d.docker("network", "ls", "-q", "--filter", label))
	if len(containers) != 2*len(ids) || len(networks) != len(ids) {
		d.Errorf("of %d sandboxes there are the containers %v and the networks %v", len(ids), containers, networks)
	}
	for _, id := range ids {
		if c, n := d.engineHolds(id); len(c) != 2 || len(n) != 1 {
			d.Errorf("%s has the containers %v and the networks %v", id, c, n)
		}
	}
}

func TestTheEnginesDeathRestartsServicesFirst(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	d := newDaemon(t, e.Host(), "")
	db, mq := web("db", 1), web("mq", 0)
	db.PostStartOnPrimary = []string{"echo ran >>/workspace/hooks"}
	id := d.create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db, mq}, OptionalServices: []*agboxv1.ServiceSpec{web("opt", 0)}})
	d.await(id, ready)
	d.awaitEvent(id, 1, serviceReady, "opt")
	e.Kill()
	e.Start()
	d.awaitEvent(id, 1, agboxv1.EventType_SANDBOX_RESTARTED, "")
	if r := d.event(id, agboxv1.EventType_SANDBOX_RESTARTED, "").GetSandboxPhase().GetReason(); r != "engine_death" {
		t.Errorf("the reason is %q", r)
	}
	d.eventually("the optional one is back", func() error {
		if s := d.service(id, "opt"); s.GetState() != "READY" || !d.inspect(naming.Service(id, "opt")).State.Running {
			return fmt.Errorf("%v", s)
		}
		return nil
	})
	started := func(c string) time.Time { return d.inspect(c).State.StartedAt }
	one, two, primary := started(naming.Service(id, "db")), started(naming.Service(id, "mq")), started(naming.Primary(id))
	if two.Sub(one) < time.Second || primary.Before(two) {
		t.Errorf("db started at %s, mq at %s, the primary at %s", one, two, primary)
	}
	if got := d.sh(id, fetch("db")+"; "+fetch("mq")+"; "+fetch("opt")+"; cat /workspace/hooks"); got != "db\nmq\nopt\nran\n" {
		t.Errorf("after the restart: %q", got)
	}
	if rows := d.rows(id); strings.Contains(strings.ReplaceAll(rows, "SERVICE_FAILED(opt)", ""), "FAILED") || strings.Count(rows, "RESTARTED") != 1 {
		t.Errorf("%s", rows)
	}
	d.remove(id)
}

func TestTheEnginesDeathDuringACreateDelaysIt(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	d := newDaemon(t, e.Host(), "")
	db := web("db", 2)
	db.PostStartOnPrimary = []string{"echo ran >>/workspace/hooks; " + fetch("db") + " >>/workspace/hooks"}
	id := d.create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{web("first", 0), db}})
	d.eventually("the second service runs, and is not healthy yet", func() error {
		if !d.inspectIfThere(naming.Service(id, "db")).State.Running {
			return fmt.Errorf("%s", d.rows(id))
		}
		return nil
	})
	e.Kill()
	e.Start()
	d.await(id, ready)
	d.wantRows(id, "ACCEPTED PREPARING SERVICE_READY(first) SERVICE_READY(db) READY")
	if got := d.sh(id, "cat /workspace/hooks; "+fetch("first")); got != "ran\ndb\nfirst\n" {
		t.Errorf("got %q", got)
	}
	d.remove(id)
}
