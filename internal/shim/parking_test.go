package shim

import (
	"syscall"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/channel/hub"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// parkingBox runs an agent and a command that end on TERM, and is linked to the daemon.
func parkingBox(t *testing.T) (b *box, h *hub.Hub, agent, other execjournal.Request) {
	t.Helper()
	b = newBox(t).boot()
	h = b.serveChannel()
	agent, other = b.start(b.agent("echo up; exec sleep 1000")), b.start(b.sh("echo up; exec sleep 1000"))
	b.says(agent, "up")
	b.says(other, "up")
	b.until("the channel", func() bool { return h.Connected(sandbox) })
	return b, h, agent, other
}

func (b *box) term() {
	b.Helper()
	b.signal(syscall.SIGTERM)
	b.until("the note", func() bool {
		at, err := b.dir.Terminated(sandbox)
		return err == nil && !at.IsZero()
	})
}

// wantParked checks that PID 1 still runs after a TERM, with a command that is no agent's.
func (b *box) wantParked(other execjournal.Request) {
	b.Helper()
	select {
	case <-b.done:
		b.Fatal("init has ended")
	case <-time.After(100 * time.Millisecond):
	}
	if s := b.look(other); s.Journal.EndedAtNanos != 0 {
		b.Fatalf("the command has ended: %+v", s)
	}
}

func TestATermWaitsUntilTheWorkOfAgentsIsSaved(t *testing.T) {
	t.Parallel()
	b, _, agent, other := parkingBox(t)
	b.term()
	b.wantParked(other)
	b.cancel(agent)
	if j := b.ended(agent); !j.Cancelled || j.Stopped {
		t.Errorf("%+v", j)
	}
	save := b.sh("echo saved")
	save.ExecID = execid.ForHelper(execid.ToSave, "key")
	b.start(save)
	if j := b.ended(save); j.ExitCode != 0 || j.Stopped {
		t.Errorf("%+v", j)
	}
	if code := b.exitCode(); code != 0 { // by itself: no agent is left
		t.Errorf("init ended with %d", code)
	}
	if j := b.ended(other); !j.Stopped {
		t.Errorf("%+v", j)
	}
}

func TestATermWaitsForNobody(t *testing.T) {
	t.Parallel()
	// Short names: a socket below the directory of a test has a path of at most 107 characters.
	for name, end := range map[string]func(b *box, h *hub.Hub){
		"again":  func(b *box, _ *hub.Hub) { b.signal(syscall.SIGTERM) },
		"hangup": func(_ *box, h *hub.Hub) { h.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, h, agent, other := parkingBox(t)
			b.term()
			b.wantParked(other)
			end(b, h)
			if code := b.exitCode(); code != 0 {
				t.Errorf("init ended with %d", code)
			}
			if j := b.ended(agent); !j.Stopped {
				t.Errorf("%+v", j)
			}
		})
	}
	t.Run("away", func(t *testing.T) {
		t.Parallel()
		b := newBox(t).boot()
		agent := b.start(b.agent("echo up; exec sleep 1000"))
		b.says(agent, "up")
		begun := time.Now()
		b.stop()
		if j := b.ended(agent); !j.Stopped || time.Since(begun) >= parkFor {
			t.Errorf("after %s: %+v", time.Since(begun), j)
		}
	})
	t.Run("nobody", func(t *testing.T) {
		t.Parallel()
		b, _, agent, _ := parkingBox(t)
		begun := time.Now()
		b.stop()
		if j := b.ended(agent); !j.Stopped || time.Since(begun) < parkFor {
			t.Errorf("after %s: %+v", time.Since(begun), j)
		}
	})
}
