//go:build docker

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// reload has the daemon read another configuration.
func (d *daemon) reload(conf string) {
	d.Helper()
	d.conf = conf
	d.writeConfig()
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		d.Fatal(err)
	}
}

func TestAReloadedConfigurationHoldsForSandboxesThatRun(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nidle_ttl = \"1h\"\nresync_interval = \"1h\"\n")
	idle, kept := d.create(nil), d.create(&agboxv1.CreateSpec{IdleTtl: durationpb.New(0)})
	d.await(idle, ready)
	d.await(kept, ready)
	d.reload("[runtime]\nidle_ttl = \"nonsense\"\n")
	d.eventually("the log says so", func() error {
		if !strings.Contains(d.log.tail(1<<20), "configuration is not reloaded") {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	d.reload("[runtime]\nidle_ttl = \"1s\"\nresync_interval = \"1h\"\n")
	d.await(idle, stopped)
	if r := d.event(idle, agboxv1.EventType_SANDBOX_STOPPED, "").GetSandboxPhase().GetReason(); r != "idle_ttl" {
		t.Errorf("stopped because of %q", r)
	}
	d.reload("[runtime]\nidle_ttl = \"1s\"\ncleanup_ttl = \"1s\"\nresync_interval = \"1h\"\n")
	d.await(idle, deleted)
	if r := d.event(idle, agboxv1.EventType_SANDBOX_DELETED, "").GetSandboxPhase().GetReason(); r != "cleanup_ttl" {
		t.Errorf("deleted because of %q", r)
	}
	if held := d.held(idle); held != "" {
		t.Errorf("there is still %s", held)
	}
	if s := d.state(kept); s != ready {
		t.Errorf("the one that is never idle is %s", s)
	}
	d.remove(kept)
}

// recent is what is left of a history, and the highest sequence that is gone.
func (d *daemon) recent(id string) (left []*agboxv1.SandboxEvent, gone uint64) {
	d.Helper()
	last := d.sandbox(id).GetLastEventSequence()
	stream := must(d.SubscribeSandboxEvents(d.ctx(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id}))(d)
	for expected := uint64(1); ; {
		e, err := stream.Recv()
		if err != nil {
			d.Fatal(err)
		}
		if e.GetSequence() != expected {
			gone = e.GetSequence() - 1
		}
		expected = e.GetSequence() + 1
		if left = append(left, e); e.GetSequence() == last {
			return left, gone
		}
	}
}

func TestTheHistoryOfALiveSandboxIsBounded(t *testing.T) {
	t.Parallel()
	const limit, execs = 100, 80
	d := newDaemon(t, "", fmt.Sprintf("[runtime]\nevent_history_limit = %d\n", limit))
	id := d.create(nil)
	d.await(id, ready)
	ids := make([]string, execs)
	for i := range ids {
		ids[i] = d.exec(id, "true").GetExecId()
	}
	for _, execID := range ids {
		d.ended(execID)
	}
	for range 2 { // the second time after a restart
		left, gone := d.recent(id)
		if len(left) > limit || len(left) < limit/2 {
			t.Errorf("%d events are left", len(left))
		}
		for i, kind := range []string{"SANDBOX_ACCEPTED", "SANDBOX_PREPARING", "SANDBOX_READY"} {
			if left[i].GetEventType().String() != kind || left[i].GetSequence() != uint64(i+1) {
				t.Errorf("event %d: %v", i, left[i])
			}
		}
		d.wantExpired(id, gone-1, gone)
		stream := must(d.SubscribeSandboxEvents(d.ctx(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: gone}))(t)
		if e := must(stream.Recv())(t); e.GetSequence() != gone+1 {
			t.Errorf("after %d comes %v", gone, e)
		}
		d.restart()
	}
	d.remove(id)
}

// wantExpired subscribes from a sequence that is no longer retained.
func (d *daemon) wantExpired(id string, from, gone uint64) {
	d.Helper()
	stream := must(d.SubscribeSandboxEvents(d.ctx(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from}))(d)
	_, err := stream.Recv()
	if !isCode(err, codes.OutOfRange) {
		d.Fatalf("from %d: %v", from, err)
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			oldest, err := strconv.ParseUint(info.GetMetadata()["oldest_sequence"], 10, 64)
			if err != nil || oldest != gone && oldest != gone+1 {
				d.Errorf("%d is gone; %v", gone, info)
			}
			return
		}
	}
	d.Errorf("no details: %v", err)
}
