// Package try tries inside a sandbox what package attack judges. It leaves nothing behind, and what succeeds harms nothing: it opens and
// reads at most, and what it has made, it removes. A flood, which is asked for, fills a limit for a moment; if the self-test is killed in it, the kernel
// removes what it has made.
package try

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/attack"
	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// Nothing is the argument with which Run does nothing: the program of a namespace that must not exist.
const Nothing = "nothing"

// Run is the verb attack.Verb with its arguments: it tries everything, and writes the results to w.
func Run(args []string, w io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == Nothing:
		return nil
	case len(args) == 2 && args[0] == fillMemory:
		return fill(args[1])
	}
	var (
		targets []attack.Target
		floods  []attack.Flood
	)
	for _, arg := range args {
		f, ok, err := attack.ParseFlood(arg)
		if err != nil {
			return err
		}
		if ok {
			floods = append(floods, f)
			continue
		}
		if len(targets) == attack.MaxTargets {
			continue
		}
		t, err := attack.ParseTarget(arg)
		if err != nil {
			return err
		}
		targets = append(targets, t)
	}
	reached, err := reach(targets)
	if err != nil {
		return err
	}
	out := json.NewEncoder(w)
	for _, r := range append(local(), reached...) {
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	// Last, since a flood disturbs what runs at the same time.
	for _, r := range limits() {
		for _, f := range floods {
			if f.Check == r.Check {
				flood(&r, f.Limit)
			}
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// deed is one thing to try; it returns what succeeded, or nothing.
type deed func() string

func local() (results []attack.Result) {
	me := status()
	for _, c := range []struct {
		check string
		deeds []deed
	}{
		{attack.Capabilities, []deed{me.holds("CapEff"), me.holds("CapPrm"), me.holds("CapAmb")}},
		{attack.Setuid, []deed{me.gains}},
		{attack.Syscalls, []deed{me.unfiltered}},
		{attack.Packets, []deed{opens("packets", unix.AF_PACKET, unix.SOCK_RAW, 0), opens("raw IP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)}},
		{attack.Mount, []deed{mounts}},
		{attack.Devices, append(disks(), makesDevice)},
		{attack.Namespaces, []deed{makesUserNamespace}},
		{attack.Kernel, []deed{
			passes("finit_module", unix.SYS_FINIT_MODULE, ^uintptr(0)), passes("bpf", unix.SYS_BPF, 0),
			passes("kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, ^uintptr(0)), passes("perf_event_open", unix.SYS_PERF_EVENT_OPEN, 0),
		}},
		{attack.Memory, []deed{reads("/dev/mem"), reads("/dev/kmem"), reads("/dev/port"), reads("/dev/kmsg"), reads("/proc/kcore"), readsMessages}},
		{attack.Settings, []deed{
			writes("/proc/sys/kernel/core_pattern"), writes("/proc/sys/kernel/modprobe"), writes("/proc/sysrq-trigger"), writes("/sys/kernel/uevent_helper"),
			writes("/sys/power/state"),
		}},
		{attack.Cgroups, cgroupFiles()},
		{attack.Processes, []deed{shares("pid", 0xEFFFFFFC), shares("ipc", 0xEFFFFFFF), shares("uts", 0xEFFFFFFE)}},
		{attack.Engine, []deed{
			finds("/run/docker.sock"), finds("/var/run/docker.sock"), finds("/run/containerd/containerd.sock"), finds("/run/podman/podman.sock"),
			finds("/run/crio/crio.sock"),
		}},
		{attack.Agbox, []deed{creates(execjournal.ContainerCtl), creates(filepath.Dir(execjournal.ContainerShim)), writes(execjournal.ContainerShim), speaks}},
	} {
		r := attack.Result{Check: c.check, Tried: len(c.deeds)}
		for _, do := range c.deeds {
			if what := do(); what != "" {
				r.Done = append(r.Done, attack.Success{What: what})
			}
		}
		results = append(results, r)
	}
	return results
}

// process is what the kernel says about this process, by the names of /proc/self/status.
type process map[string]string

func status() process {
	p := process{}
	for line := range lines("/proc/self/status") {
		name, value, _ := strings.Cut(line, ":")
		p[name] = strings.TrimSpace(value)
	}
	return p
}

func (p process) holds(set string) deed {
	return func() string {
		if strings.Trim(p[set], "0") == "" {
			return ""
		}
		return set + " " + p[set]
	}
}

func (p process) gains() string {
	if p["NoNewPrivs"] == "1" {
		return ""
	}
	return "no_new_privs is not set, CapBnd " + p["CapBnd"]
}

func (p process) unfiltered() string {
	const filter = "2"
	if p["Seccomp"] == filter {
		return ""
	}
	return "Seccomp " + p["Seccomp"]
}

func opens(what string, domain, kind, protocol int) deed {
	return func() string {
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return ""
		}
		_ = unix.Close(fd)
		return "a socket of " + what
	}
}

// tempDir makes a directory. Some file systems of a sandbox may not be writable, or have no /tmp.
func tempDir() (dir string, err error) {
	for _, in := range []string{"", "/dev/shm", "/workspace"} {
		if dir, err = os.MkdirTemp(in, "agbox-attack-"); err == nil {
			break
		}
	}
	return dir, err
}

func mounts() string {
	dir, err := tempDir()
	if err != nil {
		return ""
	}
	defer func() { _ = os.Remove(dir) }()
	if unix.Mount("tmpfs", dir, "tmpfs", 0, "") != nil {
		return ""
	}
	_ = unix.Unmount(dir, unix.MNT_DETACH)
	return "a tmpfs"
}

func makesDevice() string {
	dir, err := tempDir()
	if err != nil {
		return ""
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if unix.Mknod(dir+"/mem", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1))) != nil {
		return ""
	}
	return "a device file"
}

// disks opens the host's disks, as /proc/partitions names them.
func disks() (all []deed) {
	for line := range lines("/proc/partitions") {
		if f := strings.Fields(line); len(f) == 4 && f[0] != "major" {
			all = append(all, reads("/dev/"+f[3]))
		}
	}
	return all
}

func makesUserNamespace() string {
	cmd := exec.Command("/proc/self/exe", attack.Verb, Nothing)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	if cmd.Run() != nil {
		return ""
	}
	return "a user namespace"
}

// passes makes a system call with arguments that it can't work with: without the right to it, the kernel does not look at them.
func passes(name string, number uintptr, first uintptr) deed {
	return func() string {
		_, _, err := unix.Syscall6(number, first, 0, 0, 0, 0, 0)
		if err == unix.EPERM || err == unix.EACCES || err == unix.ENOSYS {
			return ""
		}
		return name
	}
}

func reads(path string) deed {
	return func() string {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return ""
		}
		defer unix.Close(fd)
		if n, _ := unix.Read(fd, make([]byte, 4096)); n <= 0 { // the engine hides some files behind /dev/null
			return ""
		}
		return path
	}
}

func readsMessages() string {
	const readAll = 3
	if n, err := unix.Klogctl(readAll, make([]byte, 16)); err != nil || n == 0 {
		return ""
	}
	return "syslog(2)"
}

func writes(path string) deed {
	return func() string {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return ""
		}
		defer unix.Close(fd)
		var st, null unix.Stat_t
		if unix.Fstat(fd, &st) == nil && unix.Stat("/dev/null", &null) == nil && st.Rdev == null.Rdev && st.Mode&unix.S_IFMT == unix.S_IFCHR {
			return "" // hidden by the engine
		}
		return path
	}
}

func cgroupFiles() (all []deed) {
	for _, pattern := range []string{"cgroup.procs", "memory.max", "pids.max", "release_agent", "*/cgroup.procs", "*/release_agent", "*/memory.limit_in_bytes", "*/pids.max"} {
		paths, _ := filepath.Glob("/sys/fs/cgroup/" + pattern) // the pattern is well-formed
		for _, path := range paths {
			all = append(all, writes(path))
		}
	}
	return all
}

// shares says whether a namespace is the host's: the kernel numbers its first ones (PROC_*_INIT_INO in include/linux/proc_ns.h).
func shares(name string, first uint64) deed {
	return func() string {
		var st unix.Stat_t
		if unix.Stat("/proc/self/ns/"+name, &st) != nil || st.Ino != first {
			return ""
		}
		return "the " + name + " namespace of the host"
	}
}

func finds(path string) deed {
	return func() string {
		if info, err := os.Stat(path); err != nil || info.Mode().Type() != os.ModeSocket {
			return ""
		}
		return path
	}
}

func creates(dir string) deed {
	return func() string {
		path := dir + "/attack"
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return ""
		}
		_ = unix.Close(fd)
		_ = unix.Unlink(path)
		return "a file in " + dir
	}
}

// speaks connects to agboxd, which closes connections of others than PID 1.
func speaks() string {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	if unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit) != nil ||
		unix.Connect(fd, &unix.SockaddrUnix{Name: execjournal.ContainerCtl + "/" + channel.SocketName}) != nil {
		return ""
	}
	if n, err := unix.Read(fd, make([]byte, 1)); n == 0 && err == nil || err == unix.ECONNRESET {
		return ""
	}
	return "a connection to agboxd"
}
