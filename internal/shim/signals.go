package shim

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// signals turns signals into flags and into a descriptor that poll(2) sees. A signal that came is never forgotten; two of
// a kind may be one. Its goroutine lives as long as the process and touches nothing else.
type signals struct {
	fd    int // eventfd
	flags [len(caught)]atomic.Bool
}

// The signals that mean something to init and to a supervisor, as indices of caught.
const (
	childDied    = iota
	askedToEnd   // init: stop; supervisor: look for a cancel, and at the inbox
	interrupted  // init: stop
	sandboxStops // supervisor
)

var caught = [...]os.Signal{unix.SIGCHLD, unix.SIGTERM, unix.SIGINT, unix.SIGUSR1}

// sunk are signals that must neither end PID 1 nor reach our children as ignored, which a handler alone ensures: handlers
// are reset by execve, ignoring is inherited.
var sunk = []os.Signal{unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR2, unix.SIGALRM, unix.SIGPIPE}

func catch() (*signals, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	s := &signals{fd: fd}
	var came [len(s.flags)]chan os.Signal // of their own: a flood of one kind must not crowd out another
	for i, kind := range caught {
		came[i] = make(chan os.Signal, 1)
		signal.Notify(came[i], kind)
	}
	signal.Notify(make(chan os.Signal, 1), sunk...)
	go s.forward(came)
	return s, nil
}

// forward is one goroutine, so that it needs one thread at most.
func (s *signals) forward(came [len(caught)]chan os.Signal) {
	for {
		select {
		case <-came[childDied]:
			s.flags[childDied].Store(true)
		case <-came[askedToEnd]:
			s.flags[askedToEnd].Store(true)
		case <-came[interrupted]:
			s.flags[interrupted].Store(true)
		case <-came[sandboxStops]:
			s.flags[sandboxStops].Store(true)
		}
		s.wake()
	}
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

// take tells whether a signal of the given index came since the last take.
func (s *signals) take(kind int) bool { return s.flags[kind].Swap(false) }

// idleThreads is how many threads a loop needs beside its own, the signal receiver's, which is there already, and the
// runtime's monitor: one to run Go code while the loop polls, and one for when the forwarder sits in its write.
const idleThreads = 2

// warmThreads makes the runtime create n threads beside the caller's. They are idle afterwards and never given back.
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
