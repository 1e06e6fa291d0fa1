package cli

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestSignalThatComesTwiceAtOnceIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := make(chan os.Signal)
		ctx, cancel := context.WithCancelCause(t.Context())
		left := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			watchSignals(ch, cancel, func(code int) { left = code })
		}()
		ch <- syscall.SIGTERM
		ch <- syscall.SIGTERM // timeout(1): to the child, then to its group
		synctest.Wait()
		if ctx.Err() == nil || left != 0 {
			t.Errorf("after a signal sent twice: context %v, exit %d; want cancelled and no exit", ctx.Err(), left)
		}
		time.Sleep(sameSignal + time.Millisecond)
		ch <- syscall.SIGINT
		synctest.Wait()
		if left != 130 {
			t.Errorf("after a later second signal: exit %d, want 130", left)
		}
		close(ch)
		<-done
	})
}
