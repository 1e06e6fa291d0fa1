//go:build docker

package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
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
		t.Skipf("this kernel has no btrfs, the only file system whose quota a test can set without quota tools: %v\n%s", err, out)
	}
	t.Fatalf("%s: %v (hack/test-tools.sh installs the tools)\n%s", script, err, out)
}
