package shim

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/execphase"
)

// An engine that a shell started in the background ignores some signals, and its child processes inherit this.
func TestACommandIgnoresNoSignalWhateverItsEngineDid(t *testing.T) {
	b := newBox(t)
	b.wrap = func(cmd *exec.Cmd) {
		script := `trap "" HUP INT QUIT USR2 TTOU RTMIN RTMIN+2; exec "$0" "$@"`
		cmd.Path = "/bin/bash"
		cmd.Args = append([]string{"bash", "-c", script}, cmd.Args...)
	}
	if _, err := os.Stat("/bin/bash"); err != nil {
		t.Skip("no shell that can ignore real-time signals")
	}
	b.boot()
	r := b.start(b.request("/bin/grep", "SigIgn", "/proc/self/status"))
	b.until("the end", func() bool { return b.look(r).Phase == execphase.Ended })
	stdout, _ := b.dir.LogPaths(sandbox, r.ExecID)
	out, err := os.ReadFile(stdout)
	if err != nil || strings.TrimSpace(strings.TrimPrefix(string(out), "SigIgn:")) != "0000000000000000" {
		t.Errorf("got %q, %v", out, err)
	}
}
