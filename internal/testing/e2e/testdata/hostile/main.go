// Command hostile tries what a hostile program in a sandbox would, and prints a line for each attempt that the kernel allowed.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// attempts are made in the order of this list, each in a process of its own. They leave the sandbox as it is.
var attempts = []struct {
	name string
	try  func() error
}{
	{"make a device", func() error { return unix.Mknod(scratch("dev"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) }},
	{"raw socket", func() error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) }},
	{"packet socket", func() error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0x0300) }},
	{"mount", func() error { return unix.Mount("tmpfs", "/mnt", "tmpfs", 0, "") }},
	{"user namespace", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
	{"mount namespace", func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
	{"namespace of PID 1", func() error { return join("/proc/1/ns/mnt") }},
	{"chroot", func() error { return unix.Chroot("/tmp") }},
	{"become root", func() error { return becomeRoot(unix.Setresuid(0, 0, 0)) }},
	{"become somebody", func() error { return unix.Setresuid(4321, 4321, 4321) }},
	{"other groups", func() error { return unix.Setgroups([]int{0, 27}) }},
	{"all capabilities", allCapabilities},
	{"give a file away", func() error { return os.Chown(scratch("given"), 4321, 4321) }},
	{"setuid program", func() error { return prints("0", "/setuid", "whoami") }},
	{"trace PID 1", func() error { return unix.PtraceSeize(1) }},
	{"memory of PID 1", func() error { return open("/proc/1/mem", os.O_RDWR) }},
	{"environment of PID 1", func() error { return read("/proc/1/environ") }},
	{"files of PID 1", func() error { return read("/proc/1/root/etc/hostname") }},
	{"descriptors of PID 1", func() error { return open("/proc/1/fd/0", os.O_RDONLY) }},
	{"trace the supervisor", func() error { return unix.PtraceSeize(grandparent()) }},
	{"memory of the supervisor", func() error { return open(fmt.Sprintf("/proc/%d/mem", grandparent()), os.O_RDWR) }},
	{"kernel setting", func() error { return open("/proc/sys/kernel/core_pattern", os.O_WRONLY) }},
	{"higher priority", func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -5) }},
	{"kernel log", func() error { _, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 1024)); return err }},
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "whoami" {
		fmt.Println(os.Geteuid())
		return
	}
	if len(os.Args) > 1 {
		for _, a := range attempts {
			if a.name == os.Args[1] && a.try() != nil {
				os.Exit(1)
			}
		}
		return
	}
	for _, a := range attempts {
		if exec.Command("/proc/self/exe", a.name).Run() == nil {
			fmt.Println(a.name)
		}
	}
}

// scratch makes a new file's path; the file is there for "given" only.
func scratch(name string) string {
	dir, err := os.MkdirTemp("", "hostile-")
	if err != nil {
		os.Exit(1)
	}
	path := filepath.Join(dir, name)
	if name == "given" {
		_ = os.WriteFile(path, nil, 0o600)
	}
	return path
}

func socket(domain, typ, proto int) error {
	_, err := unix.Socket(domain, typ, proto)
	return err
}

func join(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return unix.Setns(fd, unix.CLONE_NEWNS)
}

// becomeRoot is nothing new for root.
func becomeRoot(err error) error {
	if err == nil && os.Getenv("WHO") == "root" {
		return unix.EEXIST
	}
	return err
}

func allCapabilities() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	all := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
	return unix.Capset(&hdr, &all[0])
}

func prints(want, program string, args ...string) error {
	out, err := exec.Command(program, args...).Output()
	if err == nil && (strings.TrimSpace(string(out)) != want || os.Getuid() == 0) {
		err = unix.EPERM
	}
	return err
}

func open(path string, flags int) error {
	f, err := os.OpenFile(path, flags, 0)
	if err == nil {
		f.Close()
	}
	return err
}

func read(path string) error {
	_, err := os.ReadFile(path)
	return err
}

// grandparent is the supervisor of the exec: the parent of the process that runs the attempts.
func grandparent() int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", os.Getppid()))
	var ppid int
	_, rest, _ := strings.Cut(string(stat), ") ")
	if f := strings.Fields(rest); len(f) > 1 {
		_, _ = fmt.Sscan(f[1], &ppid)
	}
	return ppid
}
