//go:build docker

package e2e

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mountSmall runs a script that makes a file system in $HOME, which exists, and mounts it on $DATA, which the script finds empty. It
// is unmounted, and home removed, when the test ends. Only root can mount, and only a kernel with btrfs mounts that; any other failure
// fails the test.
func mountSmall(t testing.TB, home, data, script string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	t.Cleanup(func() {
		_ = exec.Command("umount", "-l", data).Run()
		_ = os.RemoveAll(home) // while it was a mount point it stayed
	})
	cmd := exec.Command("sh", "-ec", "mkdir $DATA; "+script)
	cmd.Env = append(os.Environ(), "HOME="+home, "DATA="+data)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return
	}
	// A mount has the kernel load the module, so this list is right only after it.
	if known := must(os.ReadFile("/proc/filesystems"))(t); strings.Contains(script, "btrfs") && !strings.Contains(string(known), "\tbtrfs\n") {
		t.Skipf("this kernel has no btrfs: %v\n%s", err, out)
	}
	t.Fatalf("%s: %v (hack/test-tools.sh installs the tools)\n%s", script, err, out)
}

// needs skips the test if the kernel is built without an option (its name without CONFIG_; "": any kernel will do) or a tool is missing. A kernel
// whose configuration can't be read is taken to have the option.
func needs(t testing.TB, option string, tools ...string) {
	t.Helper()
	var lacks []string
	if config := kernelConfig(); option != "" && config != "" && !strings.Contains(config, "\nCONFIG_"+option+"=") {
		lacks = append(lacks, "a kernel with CONFIG_"+option)
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			lacks = append(lacks, tool)
		}
	}
	if len(lacks) > 0 {
		t.Skipf("this machine lacks %s; hack/vm-test.sh runs the test in one that has all", strings.Join(lacks, ", "))
	}
}

// kernelConfig is the configuration that the running kernel was built with; "": unknown.
func kernelConfig() string {
	if f, err := os.Open("/proc/config.gz"); err == nil {
		defer f.Close()
		if r, err := gzip.NewReader(f); err == nil {
			if text, err := io.ReadAll(r); err == nil {
				return string(text)
			}
		}
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	text, _ := os.ReadFile("/boot/config-" + strings.TrimSpace(string(release)))
	return string(text)
}

// boundByQuotas has the quotas of ext4 bind this goroutine, which runs as root, until the returned function is called: the kernel ignores them
// for a thread with CAP_SYS_RESOURCE.
func boundByQuotas(t testing.TB) (again func()) {
	t.Helper()
	runtime.LockOSThread()
	self := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had, has [2]unix.CapUserData
	err := unix.Capget(&self, &had[0])
	has = had
	has[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	if err = errors.Join(err, unix.Capset(&self, &has[0])); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Capset(&self, &had[0]); err != nil {
			t.Error(err) // the thread ends with the goroutine, which keeps it
			return
		}
		runtime.UnlockOSThread()
	}
}
