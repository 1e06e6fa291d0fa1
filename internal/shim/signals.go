package shim

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// signals converts signals into flags and a descriptor for poll(2). No signal is lost; two of the same kind may be merged into one. Its
// goroutines run as long as the process and access nothing else.
type signals struct {
	fd    int        // eventfd
	mu    sync.Mutex // held during a write to fd, so that the goroutines need at most one thread
	flags [len(caught)]atomic.Bool
}

// Indices into caught of the signals that init and supervisors handle.
const (
	childDied   = iota
	askedToEnd  // init: stop; supervisor: check for a cancel, the inbox and the quota
	interrupted // init: stop
)

var caught = [...]os.Signal{unix.SIGCHLD, unix.SIGTERM, unix.SIGINT}

// sunk lists signals that must neither kill PID 1 nor reach child processes as ignored. Only a handler ensures both: execve resets
// handlers, and ignored signals are inherited.
var sunk = []os.Signal{unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGPIPE}

func catch() (*signals, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	s := &signals{fd: fd}
	for i, kind := range caught {
		came := make(chan os.Signal, 1) // one channel each, so that many signals of one kind do not displace another
		signal.Notify(came, kind)
		go func() {
			for range came {
				s.flags[i].Store(true)
				s.wake()
			}
		}()
	}
	signal.Notify(make(chan os.Signal, 1), sunk...)
	return s, nil
}

// wake makes fd readable. The write fails only if fd is readable already.
func (s *signals) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
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
// the runtime's monitor: one to run Go code while the loop polls, and one while a forwarder is in its write.
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
