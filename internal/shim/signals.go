package shim

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// signals converts signals into flags and a descriptor for poll(2). No signal is lost; two of the same kind may be merged into one. Its
// goroutine runs as long as the process and accesses nothing else.
type signals struct {
	fd    int // eventfd
	flags [len(caught)]atomic.Bool
}

// Indices into caught of the signals that init and supervisors handle.
const (
	childDied    = iota
	askedToEnd   // init: stop; supervisor: check for a cancel, the inbox and the quota
	interrupted  // init: stop
	sandboxStops // supervisor: the container stops
)

var caught = [...]os.Signal{unix.SIGCHLD, unix.SIGTERM, unix.SIGINT, unix.SIGUSR1}

// sunk lists signals that must neither kill PID 1 nor reach child processes as ignored. Only a handler ensures both: execve resets
// handlers, and ignored signals are inherited.
var sunk = []os.Signal{unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR2, unix.SIGALRM, unix.SIGPIPE}

func catch() (*signals, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	s := &signals{fd: fd}
	var came [len(s.flags)]chan os.Signal // one channel each, so that many signals of one kind do not displace another
	for i, kind := range caught {
		came[i] = make(chan os.Signal, 1)
		signal.Notify(came[i], kind)
	}
	signal.Notify(make(chan os.Signal, 1), sunk...)
	go s.forward(came)
	return s, nil
}

// forward sets the flags. It is a single goroutine, so it needs at most one thread.
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

// wake makes fd readable. The write fails only if fd is readable already.
func (s *signals) wake() {
	_, _ = unix.Write(s.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// clear resets fd until the next signal. Call it before take.
func (s *signals) clear() {
	var b [8]byte
	_, _ = unix.Read(s.fd, b[:])
}

// consume reports whether a signal of the given index arrived since the last call.
func (s *signals) consume(kind int) bool { return s.flags[kind].Swap(false) }

// idleThreads is the number of threads that a loop needs besides its own, that of the signal receiver, which exists already, and that of
// the runtime's monitor: one to run Go code while the loop polls, and one while the forwarder is in its write.
const idleThreads = 2

// warmThreads makes the Go runtime create n threads besides the caller's. They stay idle, and the runtime keeps them.
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

// sigaction is the kernel's struct sigaction on 64-bit machines.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

const (
	sigIgn     = 1
	lastSignal = 64
)

// handleSignals resets every ignored signal to its default action. Ignored signals are inherited from the engine, which a shell may have
// started in the background, by every command, which would then not react to ^C. Package signal cannot reset signals that were ignored when
// the runtime started, nor those that the runtime does not handle.
func handleSignals() {
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		var now, byDefault sigaction
		size := unsafe.Sizeof(now.mask)
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&now)), size, 0, 0)
		if errno == 0 && now.handler == sigIgn {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&byDefault)), 0, size, 0, 0)
		}
	}
}
