package controller_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// BenchmarkRestartWithAThousandAgents measures the time from the start of a daemon until each of 1,000 idle agents has been observed. The
// promise is less than 2 s.
func BenchmarkRestartWithAThousandAgents(b *testing.B) {
	const agents = 1000
	dir, err := os.MkdirTemp(fastDir(), "agbox-restart-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	p := newPlayer(dir)
	defer func() {
		if err := p.close(); err != nil {
			b.Error(err)
		}
	}()
	if err := p.start(-1); err != nil {
		b.Fatal(err)
	}
	if err := p.do(act{"create", 0}); err != nil {
		b.Fatal(err)
	}
	box := p.boxes[0]
	await(b, "the sandbox is up", func() bool {
		sb, err := p.store.Sandbox(context.Background(), box)
		return err == nil && sb.State == agboxv1.SandboxState_SANDBOX_STATE_READY
	})
	spec := &agboxv1.AgentSpec{SandboxId: box, Command: []string{"agent", "boot=0"}}
	for i := range agents {
		if _, err := p.store.CreateAgent(context.Background(), fmt.Sprint("agent-", i), "", spec); err != nil {
			b.Fatal(err)
		}
	}
	all := func(state agboxv1.AgentState) bool {
		for i := range agents {
			id := fmt.Sprint("agent-", i)
			a, err := p.store.Agent(context.Background(), id)
			if _, unverified := p.daemon.AgentStatus(id); err != nil || a.Status.GetState() != state || unverified {
				return false
			}
		}
		return true
	}
	await(b, "they are idle", func() bool { return all(agentIdle) })
	for b.Loop() {
		if err := p.restart(-1); err != nil && !errdefs.IsCanceled(err) {
			b.Fatal(err)
		}
		await(b, "they were looked at", func() bool { return all(agentIdle) })
	}
}

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within a minute: " + what)
		}
	}
}
