package firewall_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/agbox/agbox/internal/host/firewall"
)

// unprivileged is set in the environment of a second process of this test, which has no privilege.
const unprivileged = "AGBOX_TEST_UNPRIVILEGED"

// A process without privilege gets an error of that class, whatever it asks for.
func TestWithoutPrivilege(t *testing.T) {
	if os.Getenv(unprivileged) == "" {
		if os.Geteuid() != 0 {
			t.Skip("needs root: gives up its privilege")
		}
		again := exec.Command("/proc/self/exe", "-test.run", "^TestWithoutPrivilege$", "-test.v")
		again.Env = append(os.Environ(), unprivileged+"=1")
		again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Fatal(err, string(out))
		}
		return
	}
	fw := firewall.New(0)
	_, sweep := fw.Sweep(func(string) bool { return false })
	for what, err := range map[string]error{"check": fw.Check(), "sweep": sweep} {
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
