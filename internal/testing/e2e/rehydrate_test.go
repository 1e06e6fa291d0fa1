//go:build docker

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// TestALostDatabaseIsRestoredFromItsLog: every record, event and ended exec is as it was.
func TestALostDatabaseIsRestoredFromItsLog(t *testing.T) {
	t.Parallel()
	v, other := newVillage(t), newDaemon(t, "", "")
	neighbour := other.create(nil)
	other.await(neighbour, ready)
	died := v.named("dies-unseen", &agboxv1.CreateSpec{})
	v.await(died, ready)
	ended := v.work()
	doomed, half := v.create(nil), v.create(nil)
	must(v.DeleteSandbox(v.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: doomed}))(t)
	v.look(ended)
	theirs := other.viewed(neighbour)
	v.killLogged()
	v.docker("kill", naming.Primary(died))
	v.lose(theDatabase)
	lines, rest := v.dryRun()
	if len(lines) < 8 || lines[v.ids["frozen"]] != "box-frozen log PAUSED 1 -" || strings.Contains(rest, "former") || !strings.Contains(rest, neighbour) {
		t.Errorf("the dry run: %v %s", lines, rest)
	}
	v.start()
	for kind, was := range v.views {
		v.sameAsBefore(kind, was)
	}
	v.failsWith(died, "CONTAINER_DIED")
	v.await(half, ready)
	v.eventually("the delete goes on", func() error {
		if held := v.held(doomed); held != "" {
			return fmt.Errorf("%s is left", held)
		}
		return nil
	})
	if is := other.viewed(neighbour); !proto.Equal(is.handle, theirs.handle) || !slices.Equal(is.containers, theirs.containers) {
		t.Errorf("another daemon's is %v, and was %v", is, theirs)
	}
	v.goesOn()
	v.checksOut()
	for _, kind := range []string{"frozen", "demoted", "stopped"} {
		v.resume(v.ids[kind])
		v.sh(v.ids[kind], "true")
	}
	v.removeAll()
}

// TestSandboxesAreRebuiltFromLabelsAlone: the database is lost and its log too, and then the file with the UUID too.
func TestSandboxesAreRebuiltFromLabelsAlone(t *testing.T) {
	t.Parallel()
	v, other := newVillage(t), newDaemon(t, "", "")
	neighbour := other.create(nil)
	other.await(neighbour, ready)
	theirs := other.viewed(neighbour)
	v.look(v.work())
	for _, lost := range [][]string{{theDatabase, theLog}, {theDatabase, theLog, theUUID}} {
		v.killLogged()
		v.lose(lost...)
		lines, rest := v.dryRun()
		if len(lines) != 1+len(v.ids) || !strings.Contains(lines[v.ids["ready"]], "box-ready labels READY 3 ") || strings.Contains(rest, "former") != (len(lost) == 3) {
			t.Errorf("the dry run: %v %s", lines, rest)
		}
		v.start()
		for kind, was := range v.views {
			v.sameAfter(fmt.Sprintf("without %v: %s", lost, kind), was, guessed(kind))
		}
		guesses := []string{"created_at", "deadline_at", "last_sequence", "state_changed_at", "updates"}
		v.wantRebuilt(v.ids["frozen"], "labels", guesses...)
		v.wantRebuilt(v.ids["services"], "labels", guesses...)
		v.wantRebuilt(v.ids["ready"], "labels", append(guesses[:2:2], "execs", "last_sequence", "state_changed_at", "updates")...)
		v.wantDeadline(time.Hour)
		if is := other.viewed(neighbour); !proto.Equal(is.handle, theirs.handle) || !slices.Equal(is.containers, theirs.containers) {
			t.Errorf("another daemon's is %v, and was %v", is, theirs)
		}
	}
	v.goesOn()
	v.checksOut()
	v.resume(v.ids["frozen"])
	for _, kind := range []string{"demoted", "stopped"} {
		v.resume(v.ids[kind])
		v.sh(v.ids[kind], "true")
	}
	v.removeAll()
}

// guessed blanks what only a record can tell.
func guessed(kind string) func(*agboxv1.SandboxHandle) {
	return func(h *agboxv1.SandboxHandle) {
		h.CreatedAt, h.StateChangedAt, h.DeadlineAt, h.Restarts = nil, nil, nil, 0
		switch kind {
		case "ready": // as the engine counts them
			h.Spec.MemoryLimit = "67108864"
		case "demoted": // looks like any other that was stopped
			h.State, h.DesiredState, h.DemotedAt = stopped, "stopped", nil
		case "failed":
			h.ErrorMessage = ""
		}
	}
}

// wantDeadline checks that the deadline started over.
func (v *village) wantDeadline(in time.Duration) {
	v.Helper()
	at := v.sandbox(v.ids["ready"]).GetDeadlineAt().AsTime()
	if left := time.Until(at); left > in || left < in-patience {
		v.Errorf("%s are left, want %s", left, in)
	}
}

// A database that is cut anywhere is kept as it is, and what was in it comes back.
func TestACutDatabaseIsKeptAndRestored(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id, other := d.named("one", &agboxv1.CreateSpec{Timeout: durationpb.New(time.Hour)}), d.named("two", &agboxv1.CreateSpec{})
	d.await(id, ready)
	d.await(other, ready)
	e := d.exec(id, "sh", "-c", "echo said; exit 4")
	d.ended(e.GetExecId())
	for range 5 {
		was := d.viewed(id, e.GetExecId())
		d.killLogged()
		kept := d.cut()
		d.log = &logFile{}
		d.start()
		d.sameAsBefore("cut", was)
		asides := must(filepath.Glob(d.data("ids.db.damaged-*")))(t)
		if len(asides) != 1 || d.read(asides[0]) != kept || !strings.Contains(d.log.tail(1<<20), asides[0]) {
			t.Errorf("kept are %v of %d bytes; the log says %s", asides, len(kept), d.log.tail(4000))
		}
		d.lose("ids.db.damaged-*")
	}
	d.remove(id)
	d.remove(other)
}
