package execjournal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Paths are the host directories that one sandbox's primary container mounts.
type Paths struct {
	Logs string // at ContainerLogs, writable
	Ctl  string // at ContainerCtl, read-only
	Out  string // at ContainerOut, writable
}

// Dir is the daemon's access to the files of all execs. Its methods may be called concurrently, but Start, Cancel, Close and Forget
// of one exec must not run concurrently. All state is in the files; only the watches are in memory.
//
// Start and Cancel take mu. The only I/O under mu is lstat(2) and inotify_add_watch(2) of log directories: both look up a path that the daemon
// made, which is usually in the kernel's cache; they write nothing, and wait for no container and no engine. The directories of agents are
// opened, made and watched under agentMu: mkdirat(2) may wait for the disk, which delays other watches of agents, and Remove, but no exec.
type Dir struct {
	outputRoot, runRoot string

	// Boot is the host's boot ID, which Release gives to PID 1. Set it before the first call; empty: unknown.
	Boot string
	// Root returns the host's user who is root in the containers of an engine that remaps users; the zero value is this process's user. Not
	// known: the directories stay those of whose they are. Set it before the first call; nil: this process's user.
	Root func() (root Owner, known bool)

	mu      sync.Mutex
	watched map[string]*logDir // log directories to watch, by sandbox ID
	watcher *watchSet          // nil while Watch does not run, or has no instance
	sooner  chan struct{}      // receives an element when a directory is to be polled sooner

	agentMu      sync.Mutex
	agents       map[execKey]bool // execs whose output is to be watched
	agentWatcher *watchSet        // nil while WatchAgents does not run

	followers followers
}

// Owner is a user and a group of the host.
type Owner struct{ UID, GID int }

// New returns the Dir with logs below outputRoot and requests below runRoot, both absolute paths. It does no I/O. Keep runRoot
// short: future releases place sockets there, whose paths are limited to 107 characters.
func New(outputRoot, runRoot string) *Dir {
	return &Dir{
		outputRoot: outputRoot, runRoot: runRoot,
		watched: map[string]*logDir{}, sooner: make(chan struct{}, 1), agents: map[execKey]bool{},
	}
}

// Paths returns the paths of sandboxID's directories. They need not exist.
func (d *Dir) Paths(sandboxID string) Paths {
	run := filepath.Join(d.runRoot, RunName(sandboxID))
	return Paths{
		Logs: filepath.Join(d.outputRoot, sandboxID),
		Ctl:  filepath.Join(run, "ctl"),
		Out:  filepath.Join(run, "out"),
	}
}

// LogPaths returns the host paths of the two logs of an exec. They need not exist; their content is untrusted.
func (d *Dir) LogPaths(sandboxID, execID string) (stdout, stderr string) {
	logs := d.Paths(sandboxID).Logs
	return filepath.Join(logs, StdoutName(execID)), filepath.Join(logs, StderrName(execID))
}

// Prepare creates the directories of sandboxID, or restores their owners and modes, and watches the log directory if
// Watch runs. Idempotent: call it before a container is created or started, and once per live sandbox after the daemon
// started. Only the daemon's user can access the roots (0700); the directories below are open because the container's users
// reach them through the mounts, and are those of the container's root. Errors: invalid argument; failed precondition for a root or directory
// that is a symlink, not a directory, or owned by another user.
func (d *Dir) Prepare(sandboxID string) (Paths, error) {
	if err := checkSandboxID(sandboxID); err != nil {
		return Paths{}, err
	}
	p := d.Paths(sandboxID)
	run := filepath.Dir(p.Ctl)
	_, missing := os.Lstat(p.Ctl)
	steps := []struct {
		path string
		mode uint32
	}{
		{p.Logs, 0o755},
		{run, 0o700},
		{p.Ctl, 0o755},
		{filepath.Join(p.Ctl, ExecDir), 0o755},
		{p.Out, 0o755},
	}
	for _, root := range []string{d.outputRoot, d.runRoot} {
		if err := secureRoot(root); err != nil {
			return Paths{}, err
		}
	}
	root := d.rootOf(run)
	for _, s := range steps {
		if err := ensureDir(s.path, s.mode, root); err != nil {
			return Paths{}, err
		}
	}
	if missing != nil { // run may exist for the records, whose writer has not synced it
		if err := syncParent(run); err != nil {
			return Paths{}, err
		}
	}
	return p, d.AddWatch(sandboxID)
}

// checkSandboxID accepts an ID that is a safe path element.
func checkSandboxID(id string) error {
	if !ValidExecID(id) {
		return invalidf("sandbox ID is not 1 to 200 letters, digits, dots, hyphens or underscores")
	}
	return nil
}

func checkIDs(sandboxID, execID string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	if !ValidExecID(execID) {
		return invalidf("exec ID is not 1 to 200 letters, digits, dots, hyphens or underscores")
	}
	return nil
}

// secureRoot creates root, or checks that it is a real directory of the daemon's user, and sets mode 0700.
func secureRoot(root string) error {
	if !filepath.IsAbs(root) {
		return invalidf("%s is not an absolute path", root)
	}
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return fmt.Errorf("make parents of %s: %w", root, err)
	}
	_, err := makeDir(root, 0o700, self(), false)
	return err
}

// self is this process's user.
func self() Owner { return Owner{os.Geteuid(), os.Getegid()} }

// rootOf returns who owns the directories of the sandbox with the directory run. No container can change run itself.
func (d *Dir) rootOf(run string) Owner {
	if d.Root == nil {
		return self()
	}
	root, known := d.Root()
	var st unix.Stat_t
	switch {
	case !known && unix.Lstat(run, &st) == nil:
		return Owner{int(st.Uid), int(st.Gid)}
	case root == Owner{}:
		return self()
	}
	return root
}

// ensureDir creates path below a secure root. The container's root can change the owner and mode of its mounted directories;
// ensureDir restores them if permitted, and otherwise returns failed precondition.
func ensureDir(path string, mode uint32, owner Owner) error {
	created, err := makeDir(path, mode, owner, true)
	if err != nil || !created {
		return err
	}
	return syncParent(path)
}

// makeDir creates path if it is missing and sets its mode. With give, it gives a directory of another user to owner.
func makeDir(path string, mode uint32, owner Owner, give bool) (created bool, err error) {
	err = os.Mkdir(path, 0o700)
	created = err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("make %s: %w", path, err)
	}
	fd, err := OpenDir(path)
	if err != nil {
		return created, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return created, fmt.Errorf("stat %s: %w", path, err)
	}
	if int(st.Uid) != owner.UID {
		remedy := errOwner
		if give {
			remedy = os.NewSyscallError("change its owner", unix.Fchown(fd, owner.UID, owner.GID))
		}
		switch {
		case remedy == nil:
		case owner.UID == os.Geteuid():
			return created, refusedf("%s belongs to user %d, not to agboxd's user %d: %w", path, st.Uid, owner.UID, remedy)
		default:
			return created, refusedf("the engine remaps users (userns-remap), and agboxd cannot give %s to user %d, who is root in its containers; run agboxd as root: %w",
				path, owner.UID, remedy)
		}
	}
	if st.Mode&0o7777 != mode {
		if err := unix.Fchmod(fd, mode); err != nil {
			return created, fmt.Errorf("set mode of %s: %w", path, err)
		}
	}
	return created, nil
}

var errOwner = errors.New("change its owner or configure another directory")

// syncParent makes a new directory durable; an fsync of files in it does not.
func syncParent(path string) error {
	return withDir(filepath.Dir(path), func(fd int) error {
		if err := Sync(fd); err != nil {
			return fmt.Errorf("sync %s: %w", filepath.Dir(path), err)
		}
		return nil
	})
}

// OpenDir opens a directory, not a symlink to one. Errors: not found, failed precondition.
func OpenDir(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, fs.ErrNotExist):
		return -1, notFoundf("open %s: %w", path, err)
	case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return -1, refusedf("%s is not a directory", path)
	}
	return -1, fmt.Errorf("open %s: %w", path, err)
}

// withDir calls fn with the directory at path, opened as by OpenDir.
func withDir(path string, fn func(fd int) error) error {
	fd, err := OpenDir(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return fn(fd)
}

// inDir calls fn with the directory at path, opened as by OpenDir. A missing directory is no error, and fn is not called.
func inDir(path string, fn func(fd int) error) error {
	fd, err := OpenDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return fn(fd)
}

// entries yields the names in a directory. After an error it yields no more.
func entries(fd int) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		dir, err := os.Open(pathOf(fd))
		if err != nil {
			yield("", err)
			return
		}
		defer dir.Close()
		for err == nil {
			var names []string
			names, err = dir.Readdirnames(256)
			for _, name := range names {
				if !yield(name, nil) {
					return
				}
			}
		}
		if !errors.Is(err, io.EOF) {
			yield("", err)
		}
	}
}
