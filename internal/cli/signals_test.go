package cli

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestSignalThatComesTwiceAtOnceIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := make(chan os.Signal)
		ctx, cancel := context.WithCancelCause(t.Context())
		left := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			watchSignals(ch, &atomic.Bool{}, cancel, func(code int) { left = code })
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

// A child on the same terminal may fail by the same ^C, before it is on its way through this process.
func TestASignalThatCameBeforeAnErrorDecidesTheExitCode(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	failed := errors.New("permission denied")
	for range 50 {
		for err, want := range map[error]int{failed: 130, &exitError{exitNotRun, failed}: 130, &exitError{code: 3}: 3} {
			ctx, stop := WithSignals(t.Context(), func(int) {})
			if err := unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGINT); err != nil { // which returns after the signal has come
				t.Fatal(err)
			}
			if code := (&app{}).finish(ctx, err); code != want {
				t.Errorf("%v: exit %d, want %d", err, code, want)
			}
			stop()
		}
	}
}
