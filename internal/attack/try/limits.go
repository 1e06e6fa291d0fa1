package try

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/go-units"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/attack"
)

// limits says which limits this container sees.
func limits() []attack.Result {
	disk := attack.Result{Check: attack.DiskLimit}
	var st unix.Statfs_t
	if unix.Statfs("/", &st) == nil && st.Frsize > 0 {
		disk.Tried, disk.Limit = 1, st.Blocks*uint64(st.Frsize)
	}
	return []attack.Result{
		readLimit(attack.Pids, "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"),
		readLimit(attack.MemoryLimit, "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"), disk,
	}
}

// readLimit reads the first file that is there.
func readLimit(check string, paths ...string) attack.Result {
	r := attack.Result{Check: check, Why: "no control group shows it"}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		text := strings.TrimSpace(string(data))
		n, err := strconv.ParseUint(text, 10, 64)
		r.Tried, r.Why = 1, ""
		// Version 1 shows no limit as the largest number of whole pages.
		if err != nil || n >= math.MaxInt64-1<<20 {
			r.Done = []attack.Success{{What: filepath.Base(path) + " is " + text}}
			return r
		}
		r.Limit = n
		return r
	}
	return r
}

// flood tries to exceed a limit, and replaces the result if it was tried.
func flood(r *attack.Result, limit uint64) {
	var done, why string
	switch r.Check {
	case attack.Pids:
		if limit == 0 {
			limit = r.Limit
		}
		if limit == 0 || limit > attack.MostProcesses {
			r.Why = join(r.Why, "not flooded: no limit up to "+strconv.Itoa(attack.MostProcesses)+" is seen")
			return
		}
		done, why = forks(int(limit) + attack.MoreProcesses)
	case attack.MemoryLimit:
		done, why = memory(limit + attack.MoreBytes)
	case attack.DiskLimit:
		done, why = disk(limit, "/", "/workspace", "/tmp", "/var/tmp", os.Getenv("HOME"), "/")
	}
	switch {
	case done != "":
		r.Done = append(r.Done, attack.Success{What: done})
		r.Tried++
	case strings.HasPrefix(why, refused):
		r.Tried++
		if r.Check == attack.DiskLimit {
			r.Limit = limit // it holds, although the file system does not show it
		}
	}
	r.Why = join(r.Why, why)
}

func join(texts ...string) string {
	if texts[0] == "" {
		return texts[1]
	}
	return strings.Join(texts, "; ")
}

// refused begins the text about a flood that met the limit. Other texts say why none took place.
const refused = "refused"

// forks starts processes until the kernel refuses one, or there are most of them. Each exits at once, and counts until its exit code is
// asked for; so they need neither memory nor processors, and if this process is killed, none of them is left to be ended: its supervisor, or else
// PID 1, asks for their exit codes.
//
// From the refusal to the first exit code that is asked for, which is microseconds, nothing else in the sandbox can start a process.
func forks(most int) (done, why string) {
	// This process must not start a thread meanwhile: refused one, Go's runtime ends the process. So it collects no garbage.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	pids := make([]int, 0, most)
	var err syscall.Errno
	for len(pids) < most {
		var pid int
		if pid, err = forkEnded(); err != 0 {
			break
		}
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		for {
			// Not by Wait4, around which the runtime may start a thread.
			if _, _, err := syscall.RawSyscall6(syscall.SYS_WAIT4, uintptr(pid), 0, 0, 0, 0, 0); err != syscall.EINTR {
				break
			}
		}
	}
	if err != 0 {
		return "", fmt.Sprintf("%s after %d processes: %v", refused, len(pids), err)
	}
	return fmt.Sprintf("%d processes at the same time", len(pids)), ""
}

// patienceFlood bounds each flood.
const patienceFlood = 20 * time.Second

// fillMemory is the argument, before a number of bytes, with which Run fills memory: the program of the child of memory.
const fillMemory = "fill-memory"

// memory lets a child use up to most bytes. It is the process that the kernel kills first. It dies with this one.
func memory(most uint64) (done, why string) {
	// Beyond the limit of the sandbox the kernel would look for other victims, too.
	if free := available(); free < most+most/4 {
		return "", fmt.Sprintf("not flooded: the host has %s of memory left", size(free))
	}
	// The kernel sends Pdeathsig when the thread that forked ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", attack.Verb, fillMemory, strconv.FormatUint(most, 10))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return "", "not flooded: " + err.Error()
	}
	late := time.AfterFunc(patienceFlood, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		return "", fmt.Sprintf("the flood was ended after %s", patienceFlood)
	}
	if err == nil {
		return size(most) + " were used", ""
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
			return "", refused + ": the process that used it was killed"
		}
	}
	return "", "not flooded: the process that uses memory ended with " + err.Error()
}

// fill uses that many bytes of memory.
func fill(bytes string) error {
	n, err := strconv.ParseUint(bytes, 10, 64)
	if err != nil || n > attack.MostMemory+attack.MoreBytes {
		return fmt.Errorf("fill %q bytes: it is no number, or more than %d", bytes, uint64(attack.MostMemory+attack.MoreBytes))
	}
	// Every process may raise its own.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return err
	}
	all, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("map %d bytes: %w", n, err)
	}
	for i := 0; i < len(all); i += os.Getpagesize() {
		all[i] = 1
	}
	return unix.Munmap(all)
}

// available is the memory of the host that can be used without swap, in bytes.
func available() uint64 {
	for line := range lines("/proc/meminfo") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" {
			n, _ := strconv.ParseUint(f[1], 10, 64) // of the kernel
			return n << 10
		}
	}
	return 0
}

// disk fills a file on the file system of root, in the first of dirs on it that may be written. The file has no name, so the kernel removes it with this
// process, however that ends.
func disk(limit uint64, root string, dirs ...string) (done, why string) {
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return "", "not flooded: " + err.Error()
	}
	most := limit + attack.MoreBytes
	// A file system that is larger than the limit, and full, would refuse, too.
	if total, free := st.Blocks*uint64(st.Frsize), st.Bavail*uint64(st.Frsize); total > limit && free < most+most/4 {
		return "", fmt.Sprintf("not flooded: the disk has %s left", size(free))
	}
	fd := unnamed(root, dirs)
	if fd < 0 {
		return "", "not flooded: there is no place to write in"
	}
	defer unix.Close(fd)
	const step = 4 << 20
	data := noise(step)
	for written, end := uint64(0), time.Now().Add(patienceFlood); written < most; written += step {
		if time.Now().After(end) {
			return "", fmt.Sprintf("the flood was ended after %s", patienceFlood)
		}
		switch err := add(fd, int64(written), data); {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			return "", fmt.Sprintf("%s after %s: %v", refused, size(written), err)
		case err != nil:
			return "", "the flood ended: " + err.Error()
		}
	}
	return size(most) + " were written", ""
}

// add writes data, or allocates its space where the file system can do that.
func add(fd int, at int64, data []byte) error {
	if err := unix.Fallocate(fd, 0, at, int64(len(data))); err != unix.EOPNOTSUPP && err != unix.ENOSYS {
		return err
	}
	for len(data) > 0 {
		n, err := unix.Pwrite(fd, data, at)
		if err != nil {
			return err
		}
		data, at = data[n:], at+int64(n)
	}
	return nil
}

// noise returns bytes that no file system compresses.
func noise(size int) []byte {
	data, x := make([]byte, size), uint64(88172645463325252)
	for i := range data {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		data[i] = byte(x)
	}
	return data
}

// unnamed opens a new file without a name on the file system of root; -1: none of dirs is there and may be written. A kernel whose overlayfs has no such
// files gets one with a name, which is removed in the next system call.
func unnamed(root string, dirs []string) int {
	var of, st unix.Stat_t
	if unix.Stat(root, &of) != nil {
		return -1
	}
	for _, dir := range dirs {
		if unix.Stat(dir, &st) != nil || st.Dev != of.Dev {
			continue // a volume, or a mount of the host
		}
		fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err == nil {
			return fd
		}
		if err != unix.EOPNOTSUPP && err != unix.EISDIR && err != unix.ENOENT {
			continue
		}
		path := filepath.Join(dir, fmt.Sprintf(".agbox-attack-%d", os.Getpid()))
		if fd, err = unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err == nil {
			_ = unix.Unlink(path)
			return fd
		}
	}
	return -1
}

func size(bytes uint64) string { return units.BytesSize(float64(bytes)) }
