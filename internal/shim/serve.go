package shim

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/passwd"
	"github.com/agbox/agbox/internal/shim/serve"
)

const (
	// serveVerb starts a worker, which serves files and ports as one user; see package serve.
	serveVerb = "serve"
	// workerFd is a worker's end of a Unix socketpair. init sends on it, one message of one byte for each stream, a connection to the daemon.
	workerFd = 3
	// workerThreads are made at the start, because the Go runtime crashes if it needs one when the pids limit is reached.
	workerThreads = 6
)

// runServe returns when init closes its end of workerFd, and after an idle minute. The kernel kills a worker before the shim when memory
// runs out.
func runServe(o options) int {
	score, err := scoreOf(os.Getppid())
	if err != nil {
		say("read the OOM score: %v", err)
	}
	score.set(os.Getpid(), commandScore)
	who, broken := o.identify(o.user)
	if broken == nil {
		broken = become(who, o.hardened)
	}
	w := &serve.Worker{Broken: broken, Tables: func() ([]byte, []byte) {
		users, groups, _ := readTables("/etc") // without the tables, owners have numbers only
		return users, groups
	}}
	for _, pair := range environment(os.Environ(), who, nil) {
		if home, ok := strings.CutPrefix(pair, "HOME="); ok {
			w.Home = home
		}
	}
	unix.Umask(0o022)
	_ = os.Chdir("/") // a worker keeps no directory in use
	runtime.GOMAXPROCS(2)
	if err = warmThreads(workerThreads); err == nil {
		err = w.Run(workerFd)
	}
	if err != nil {
		say("start a worker: %v", err)
		return 1
	}
	return 0
}

// become makes this process, all its threads, run as who.
func become(who passwd.Identity, hardened bool) error {
	if unix.Geteuid() != 0 {
		if int(who.UID) != unix.Geteuid() {
			return fmt.Errorf("run as user %d: only root can", who.UID)
		}
		return nil
	}
	if hardened {
		if err := startUnprivileged(nil, false); err != nil {
			return err
		}
	}
	groups := make([]int, len(who.Groups))
	for i, g := range who.Groups {
		groups[i] = int(g)
	}
	err := syscall.Setgroups(groups)
	if err == nil {
		err = syscall.Setresgid(int(who.GID), int(who.GID), int(who.GID))
	}
	if err == nil {
		err = syscall.Setresuid(int(who.UID), int(who.UID), int(who.UID))
	}
	if err == nil && hardened {
		err = dropAll()
	}
	if err == nil {
		// The kernel hides /proc/self/fd after a change of the user. It leads to temporary files without a name.
		err = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
	if err != nil {
		return fmt.Errorf("run as user %d: %w", who.UID, err)
	}
	return nil
}

// dropAll removes all capabilities of this process.
func dropAll() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&sets[0])), 0)
	runtime.KeepAlive(&hdr)
	runtime.KeepAlive(&sets)
	if errno != 0 {
		return fmt.Errorf("drop the capabilities: %w", errno)
	}
	return nil
}
