package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// signals turns signals into flags and into a descriptor that poll(2) sees. A signal that came is never forgotten; two of
// a kind may be one. Its goroutines live as long as the process and never touch anything else.
type signals struct {
	fd    int // eventfd
	flags map[os.Signal]*atomic.Bool
}

// sunk are signals that must neither end PID 1 nor reach our children as ignored, which a handler alone ensures: handlers
// are reset by execve, ignoring is inherited.
var sunk = []os.Signal{unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR2, unix.SIGALRM, unix.SIGPIPE}

func catch(kinds ...os.Signal) (*signals, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	s := &signals{fd: fd, flags: make(map[os.Signal]*atomic.Bool)}
	for _, kind := range kinds {
		came, flag := make(chan os.Signal, 1), new(atomic.Bool)
		s.flags[kind] = flag
		signal.Notify(came, kind)
		go func() {
			for range came {
				flag.Store(true)
				s.wake()
			}
		}()
	}
	signal.Notify(make(chan os.Signal, 1), sunk...)
	return s, nil
}

// wake makes fd readable. The write can only fail when it is readable already.
func (s *signals) wake() {
	_, _ = unix.Write(s.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// clear makes fd wait for the next signal; call it before the flags are taken.
func (s *signals) clear() {
	var b [8]byte
	_, _ = unix.Read(s.fd, b[:])
}

// take tells whether kind came since the last take.
func (s *signals) take(kind os.Signal) bool { return s.flags[kind].Swap(false) }

// warmThreads makes the runtime create n threads beside the caller's, all of them idle afterwards and never given back. n
// is the number of goroutines that can sit in system calls at once (the signal receiver, a signal goroutine, the main
// one's stand-in while it polls) with one running for each processor.
func warmThreads(n int) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	var entered atomic.Int32
	done := make(chan struct{})
	for range n {
		go func() {
			entered.Add(1)
			var b [1]byte
			_, _ = unix.Read(p[0], b[:]) // returns when the other end is closed
			done <- struct{}{}
		}()
	}
	for entered.Load() < int32(n) {
		runtime.Gosched()
	}
	unix.Close(p[1])
	for range n {
		<-done
	}
	unix.Close(p[0])
	return nil
}
