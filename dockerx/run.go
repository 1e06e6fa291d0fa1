package dockerx

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
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
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// runSource is where the identity of the engine's run is read.
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

// engineLife is one run of the engine's process.
type engineLife struct {
	id      string    // Info.Run
	started time.Time // Info.StartedAt
}

// identify returns the engine's present run, see Info.Run. The API itself has no start time in 20.10.
// The first source that applies is used:
//
//  1. The process at the other end of the Unix socket (SO_PEERCRED: who called listen), if its name is dockerd: host
//     boot ID, PID and the process's start time. Observed on 20.10, with and without live-restore: changes with every
//     kill -9 and every orderly restart, not with SIGHUP nor with anything the containers do.
//  2. The same for the process in /run/docker.pid, if its name is dockerd and the socket is the engine's default one.
//     This is for socket activation (dockerd -H fd://, as in the Debian and upstream units): listen was called by
//     systemd. Observed with a socket that another process had opened: as reliable as the first.
//  3. The default network "bridge": its ID and creation time. For TCP, a proxy in front of the socket, or an engine in a
//     PID namespace that is not visible from here. The engine recreates that network at each start, except (observed) under
//     live-restore while a container runs on that very network: such a restart goes unnoticed.
//
// When that network does not exist either, the identity is empty. Only the first two give a start time: the network is
// created later, after the engine has loaded its containers.
func (r runSource) identify(ctx context.Context, host endpoint, c *client.Client) (engineLife, error) {
	if host.network == "unix" {
		life, err := r.local(ctx, host)
		if life.id != "" || err != nil {
			return life, err
		}
	}
	id, err := bridgeIdentity(ctx, c)
	return engineLife{id: id}, err
}

// local tries the processes of this host; empty when neither is known to be the engine.
func (r runSource) local(ctx context.Context, host endpoint) (engineLife, error) {
	pid, err := listener(ctx, host)
	if err != nil {
		return engineLife{}, err
	}
	life, err := r.process(pid)
	if life.id != "" || err != nil || !slices.Contains(r.sockets, host.address) {
		return life, err
	}
	raw, err := os.ReadFile(r.pidFile)
	if errors.Is(err, fs.ErrNotExist) {
		return engineLife{}, nil
	} else if err != nil {
		return engineLife{}, fmt.Errorf("engine's pid file: %w: %w", errdefs.ErrUnavailable, err)
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return engineLife{}, nil // being written, or not the engine's pid file
	}
	return r.process(pid)
}

// listener returns the PID of the process that listens on host; 0 when it lives in another PID namespace.
func listener(ctx context.Context, host endpoint) (int, error) {
	cred, err := peer(ctx, host)
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// peer returns who listens on the engine's unix socket. Errors: ErrUnavailable.
func peer(ctx context.Context, host endpoint) (*unix.Ucred, error) {
	conn, err := host.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, credErr); err != nil {
		return nil, fmt.Errorf("peer of %s: %w: %w", host.address, errdefs.ErrUnavailable, err)
	}
	return cred, nil
}

// process returns the run of a process named dockerd; empty for any other process and for none.
func (r runSource) process(pid int) (engineLife, error) {
	if pid <= 0 {
		return engineLife{}, nil
	}
	stat, err := r.stat(pid)
	if err != nil || stat.Comm != "dockerd" {
		return engineLife{}, nil // gone, hidden by hidepid, or another process
	}
	boot, err := os.ReadFile(filepath.Join(r.proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return engineLife{}, fmt.Errorf("boot ID: %w: %w", errdefs.ErrUnavailable, err)
	}
	id := fmt.Sprintf("process %s %d %d", strings.TrimSpace(string(boot)), pid, stat.Starttime)
	return engineLife{id, sinceBoot(stat.Starttime, time.Now())}, nil
}

func (r runSource) stat(pid int) (procfs.ProcStat, error) {
	fs, err := procfs.NewFS(r.proc)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	p, err := fs.Proc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}

// tick is the unit of start times in procfs on every kernel that this is built for (USER_HZ).
const tick = 10 * time.Millisecond

// sinceBoot converts clock ticks since boot, suspend included, to a wall clock time; zero when the clock can't be read.
func sinceBoot(ticks uint64, now time.Time) time.Time {
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Time{}
	}
	return now.Round(0).Add(time.Duration(min(ticks, math.MaxInt64/uint64(tick)))*tick - time.Duration(up.Nano()))
}

// bridgeIdentity is the third source.
func bridgeIdentity(ctx context.Context, c *client.Client) (string, error) {
	b, err := c.NetworkInspect(ctx, network.NetworkBridge, network.InspectOptions{})
	if errdefs.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return fmt.Sprintf("bridge %s %s", b.ID, b.Created.UTC().Format(time.RFC3339Nano)), nil
}
