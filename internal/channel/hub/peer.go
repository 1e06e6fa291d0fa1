package hub

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// process is a process of this host. Its start, in clock ticks since the boot, distinguishes it from a later process with the same ID.
type process struct {
	pid   int
	start string
}

func itoa(n int) string { return strconv.Itoa(n) }

// trusts reports whether the peer of a connection is the main process of the sandbox's container: the kernel says which process connected,
// the engine which process is the main one. The answer is remembered for the life of that process, so streams need no engine.
func (e *end) trusts(ctx context.Context, conn *net.UnixConn) bool {
	peer, ok := peerOf(conn)
	if !ok {
		return false
	}
	e.mu.Lock()
	known := e.known
	e.mu.Unlock()
	if peer == known {
		return true
	}
	if !e.lookups.Allow() {
		return false // PID 1 dials again
	}
	pid, err := e.h.o.MainProcess(ctx, e.sandboxID)
	if err != nil || pid <= 0 || pid != peer.pid {
		e.h.o.Logger.Debug("channel peer is not the main process", "sandbox_id", e.sandboxID, "pid", peer.pid, "main_pid", pid, "err", err)
		return false
	}
	if again, ok := processOf(pid); !ok || again != peer {
		return false // the ID was reused during the lookup
	}
	e.mu.Lock()
	e.known = peer
	e.mu.Unlock()
	return true
}

// peerOf returns the process that connected.
func peerOf(conn *net.UnixConn) (p process, ok bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return p, false
	}
	var cred *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); ctlErr != nil || err != nil {
		return p, false
	}
	return processOf(int(cred.Pid))
}

// processOf returns the living process with an ID.
func processOf(pid int) (process, bool) {
	data, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat"))
	if err != nil {
		return process{}, false
	}
	// The second field is the name in parentheses, which may contain anything; the 22nd is the start.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return process{}, false
	}
	return process{pid: pid, start: string(fields[19])}, true
}
