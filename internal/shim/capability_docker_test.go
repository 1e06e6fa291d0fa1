//go:build docker

package shim

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agbox/agbox/controller/profile"
	"github.com/agbox/agbox/internal/execphase"
)

// hardenedOptions returns the options of "docker run" for a container with the hardened profile, without the given capabilities.
func hardenedOptions(without ...string) []string {
	options := []string{"--security-opt=no-new-privileges", "--cap-drop=ALL"}
	for _, c := range profile.Primary(profile.Hardened, nil).CapAdd {
		if !slices.Contains(without, c) {
			options = append(options, "--cap-add="+c)
		}
	}
	return options
}

// daemonUID is the user ID of a daemon that does not run as root.
const daemonUID = 4242

type capabilityUse struct {
	capability, what string
	use              func(c *container) string
	broken           string // part of the text that use returns without the capability
}

// capabilityUses lists each capability that PID 1 of a hardened sandbox keeps, and what fails without it. Each use returns "" on success,
// otherwise the failure. docs/decisions/0017-mounts-and-profiles.md has the same table.
var capabilityUses = []capabilityUse{
	{"CHOWN", "a command's output pipes belong to its user", runsTrue, "set up a pipe: operation not permitted"},
	{"SETUID", "a command starts as its user", runsTrue, "operation not permitted"},
	{"SETGID", "a command starts with its user's groups", runsTrue, "operation not permitted"},
	{"SETPCAP", "a command's bounding set is emptied", runsTrue, "give up privileges: drop capability"},
	{"KILL", "a stop ends the commands of other users", func(c *container) string {
		c.says(c.start(c.sh("echo up; exec sleep 1000")), "up\n")
		docker(c, "stop", "-t", "10", c.name)
		return strings.TrimPrefix(c.inspect("{{.State.ExitCode}}"), "0")
	}, "137"},
	{"DAC_OVERRIDE", "a journal is written to a directory of the daemon's user", func(c *container) string {
		must(c, os.Chown(c.paths.Logs, daemonUID, daemonUID))
		r := c.start(c.request("true"))
		said := ""
		c.until("the exec ends, or the shim says why not", func() bool {
			said = docker(c, "logs", c.name)
			return c.look(r).Phase == execphase.Ended || strings.Contains(said, "denied")
		})
		return said
	}, "permission denied"},
	{"DAC_OVERRIDE", "a command starts in a directory that only its user may enter", func(c *container) string {
		if j, out := c.do(c.sh("mkdir -p /tmp/mine/dir && chmod 700 /tmp/mine")); j.ExitCode != 0 {
			return out
		}
		r := c.request("true")
		r.Cwd = "/tmp/mine/dir"
		j, _ := c.do(r)
		return j.Error
	}, `working directory "/tmp/mine/dir": permission denied`},
	{"DAC_OVERRIDE", "a command gets its out-of-memory score", func(c *container) string {
		r := c.start(c.sh("echo $$; exec sleep 1000"))
		score := "/proc/" + strings.TrimSpace(c.says(r, "\n")) + "/oom_score_adj"
		said := ""
		c.until("the score is set, or the shim says why not", func() bool {
			said = docker(c, "logs", c.name)
			_, out := c.do(c.sh("cat " + score))
			return out == fmt.Sprintln(commandScore) || said != ""
		})
		return said
	}, "set the OOM score of process"},
}

// runsTrue runs a command as user 1000 and returns why it failed, or "".
func runsTrue(c *container) string {
	r := c.request("true")
	r.User = "agbox"
	j, _ := c.do(r)
	return j.Error
}

// PID 1 of a hardened sandbox has no superfluous capability.
func TestContainerOfAHardenedSandboxNeedsEachCapability(t *testing.T) {
	t.Parallel()
	for _, row := range capabilityUses {
		t.Run(row.capability+": "+row.what, func(t *testing.T) {
			hardened := []string{"--hardened"}
			if got := row.use(newContainerWith(t, hardened, hardenedOptions()...)); got != "" {
				t.Errorf("with all capabilities: %s", got)
			}
			if got := row.use(newContainerWith(t, hardened, hardenedOptions(row.capability)...)); !strings.Contains(got, row.broken) {
				t.Errorf("without %s: %q, want %q", row.capability, got, row.broken)
			}
		})
	}
	for _, c := range profile.Primary(profile.Hardened, nil).CapAdd {
		if !slices.ContainsFunc(capabilityUses, func(row capabilityUse) bool { return row.capability == c }) {
			t.Errorf("no use of %s is shown", c)
		}
	}
}
