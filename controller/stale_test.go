package controller_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Docker 20.10 tells of a container's end before its lists know of it. The pass that the event brings about must not
// take the list's word, for no other pass comes until the next resync.
func TestAnEndIsSeenAlthoughTheListLagsBehindItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &player{world: newWorld(t.TempDir()), harmed: map[string]bool{}}
		p.engine.ListLag = time.Second
		if err := p.start(-1); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.close(); err != nil {
				t.Error(err)
			}
		}()
		if err := p.do(act{"create", 0}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := p.do(act{"kill box", 0}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // far less than the interval of resyncs
		sb, err := p.store.Sandbox(context.Background(), p.box(0))
		if err != nil || sb.State != agboxv1.SandboxState_SANDBOX_STATE_FAILED {
			t.Errorf("is %s, %v", sb.State, err)
		}
	})
}
func TestAnEndJustBeforeTheStartIsSeenAlthoughTheListLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &player{world: newWorld(t.TempDir()), harmed: map[string]bool{}}
		p.engine.ListLag = time.Second
		if err := p.start(-1); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.close(); err != nil {
				t.Error(err)
			}
		}()
		if err := p.do(act{"create", 0}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := p.kill(); err != nil {
			t.Fatal(err)
		}
		if err := p.do(act{"kill box", 0}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		if err := p.start(-1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // far less than the interval of resyncs
		sb, err := p.store.Sandbox(context.Background(), p.box(0))
		if err != nil || sb.State != agboxv1.SandboxState_SANDBOX_STATE_FAILED {
			t.Errorf("is %s, %v", sb.State, err)
		}
	})
}
