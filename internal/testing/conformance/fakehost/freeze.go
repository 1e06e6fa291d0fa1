package fakehost

import "syscall"

// freeze has everything in the container hold still, or go on.
func (b *box) freeze(frozen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.frozen == frozen {
		return
	}
	b.frozen = frozen
	sig := syscall.SIGCONT
	if frozen {
		sig = syscall.SIGSTOP
	}
	for _, r := range b.running {
		r.signal(sig)
	}
	if !frozen {
		select {
		case b.thawed <- struct{}{}:
		default: // PID 1 has not yet looked since the last time
		}
	}
}

func (b *box) isFrozen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.frozen
}
