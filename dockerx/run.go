package dockerx

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"
)

// runSource is where the identity of the engine's life is read.
type runSource struct {
	proc    string   // a mounted procfs
	pidFile string   // the engine's default pid file
	sockets []string // the addresses whose engine writes pidFile
}

var hostRunSource = runSource{
	proc:    "/proc",
	pidFile: "/run/docker.pid",
	sockets: []string{"/var/run/docker.sock", "/run/docker.sock"},
}

// identify returns the identity of the engine's present life, see Info.Run. The API itself has no start time in 20.10.
// The first of these that applies is used:
//
//  1. The process at the other end of the Unix socket (SO_PEERCRED: who called listen), if its name is dockerd: host
//     boot ID, PID and the process's start time. Seen on 20.10, with and without live-restore: changes with every
//     kill -9 and every orderly restart, stays on SIGHUP and whatever the containers do.
//  2. The same of the process in /run/docker.pid, if its name is dockerd and the socket is the engine's default one.
//     This is for socket activation (dockerd -H fd://, as in the Debian and upstream units): listen was called by
//     systemd. Seen with a socket that another process had opened: as reliable as the first.
//  3. The default network "bridge": its ID and creation time. For TCP, a proxy in front of the socket, or an engine in a
//     PID namespace that we don't see. The engine makes that network anew at each start, except (seen) under
//     live-restore while a container runs on that very network: such a restart goes unnoticed.
//
// When not even that network exists, the identity is empty.
func (r runSource) identify(ctx context.Context, host endpoint, c *client.Client) (string, error) {
	if host.network == "unix" {
		id, err := r.local(ctx, host)
		if id != "" || err != nil {
			return id, err
		}
	}
	return bridgeIdentity(ctx, c)
}

// local tries the processes of this host; "" when neither is known to be the engine.
func (r runSource) local(ctx context.Context, host endpoint) (string, error) {
	pid, err := listener(ctx, host)
	if err != nil {
		return "", err
	}
	id, err := r.process(pid)
	if id != "" || err != nil || !slices.Contains(r.sockets, host.address) {
		return id, err
	}
	raw, err := os.ReadFile(r.pidFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("engine's pid file: %w: %w", errdefs.ErrUnavailable, err)
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return "", nil // being written, or not what we think it is
	}
	return r.process(pid)
}

// listener returns the PID of the process that listens on host, 0 when it lives in another PID namespace.
func listener(ctx context.Context, host endpoint) (int, error) {
	conn, err := host.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, credErr); err != nil {
		return 0, fmt.Errorf("peer of %s: %w: %w", host.address, errdefs.ErrUnavailable, err)
	}
	return int(cred.Pid), nil
}

// process returns the identity of a process named dockerd, "" for any other and for none.
func (r runSource) process(pid int) (string, error) {
	if pid <= 0 {
		return "", nil
	}
	stat, err := os.ReadFile(filepath.Join(r.proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", nil // gone, or hidden by hidepid
	}
	name, start, ok := parseStat(string(stat))
	if !ok || name != "dockerd" {
		return "", nil
	}
	boot, err := os.ReadFile(filepath.Join(r.proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("boot ID: %w: %w", errdefs.ErrUnavailable, err)
	}
	return fmt.Sprintf("process %s %d %s", strings.TrimSpace(string(boot)), pid, start), nil
}

// parseStat takes the name (field 2, in parentheses, may contain anything) and the start time in clock ticks since boot
// (field 22) out of /proc/<pid>/stat.
func parseStat(stat string) (name, start string, ok bool) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", "", false
	}
	rest := strings.Fields(stat[end+1:]) // from field 3 on
	if len(rest) < 20 {
		return "", "", false
	}
	return stat[open+1 : end], rest[19], true
}

// bridgeIdentity is the third way.
func bridgeIdentity(ctx context.Context, c *client.Client) (string, error) {
	b, err := c.NetworkInspect(ctx, network.NetworkBridge, network.InspectOptions{})
	if errdefs.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return fmt.Sprintf("bridge %s %s", b.ID, b.Created.UTC().Format(time.RFC3339Nano)), nil
}
