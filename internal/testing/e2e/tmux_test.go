//go:build docker

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// screen is a terminal of tmux with a shell of this host, on a server of the test's own.
type screen struct {
	*daemon
	socket string
}

func (d *daemon) screen() *screen {
	d.Helper()
	s := &screen{d, filepath.Join(d.home, "tmux")}
	d.Cleanup(func() { _ = exec.Command("tmux", "-S", s.socket, "kill-server").Run() })
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "env", "PS1=host>", "PATH="+binaries+":"+os.Getenv("PATH"), "XDG_RUNTIME_DIR="+d.home+"/run", "sh")
	s.shows("host>")
	return s
}

func (s *screen) tmux(args ...string) string {
	s.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		s.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// keys presses keys by the names that tmux gives them; any other word is typed.
func (s *screen) keys(keys ...string) {
	s.Helper()
	s.tmux(append([]string{"send-keys", "--"}, keys...)...)
}

// shows waits until a line of the screen has the text.
func (s *screen) shows(want string) {
	s.Helper()
	s.eventually("the screen shows "+want, func() error {
		if got := s.tmux("capture-pane", "-p"); !strings.Contains(got, want) {
			return errors.New(strings.TrimSpace(got))
		}
		return nil
	})
}

// clear waits until the screen has nothing but the prompt of a shell: what was there before is no answer to what is typed next.
func (s *screen) clear(prompt string) {
	s.Helper()
	s.keys("clear", "Enter")
	s.eventually("the screen is clear", func() error {
		if got := strings.TrimSpace(s.tmux("capture-pane", "-p")); got != prompt {
			return errors.New(got)
		}
		return nil
	})
}

// TestAShellInASandboxIsLikeALocalOne: an editor on the whole screen, a resize, job control, signals, keys that are typed while agboxd is dead,
// detach and attach, and the exit code.
func TestAShellInASandboxIsLikeALocalOne(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.named("box", &agboxv1.CreateSpec{})
	d.await(id, ready)
	s := d.screen()

	d.sh(id, "seq 100 >/tmp/x")
	s.keys("clear; agbox exec -it box -- vi /tmp/x", "Enter")
	s.shows("- /tmp/x 1/100 1%")
	s.keys("50GiHELLO")
	s.shows("HELLO50")
	s.tmux("resize-window", "-x", "100", "-y", "30")
	s.keys("Escape")
	s.shows("- /tmp/x [Modified] 50/100 50%") // a key that follows an escape at once would be part of its sequence
	s.keys("1G")
	s.shows("\n29\n- /tmp/x [Modified] 1/100 1%")
	s.keys(":wq", "Enter")
	s.shows("host>")

	s.keys("clear; agbox exec -it box -- env PS1='in box>' sh", "Enter")
	s.shows("in box>")
	s.keys("clear; stty size; grep -n HELLO /tmp/x", "Enter")
	s.shows("30 100\n50:HELLO50")

	s.keys("clear; sleep 1000; echo rc=$?", "Enter")
	s.eventually("sleep runs", func() error {
		if d.sh(id, "pidof sleep || true") == "" {
			return errors.New("it does not")
		}
		return nil
	})
	s.keys("C-z")
	s.shows("Stopped")
	s.clear("in box>")
	s.keys("fg", "Enter")
	s.shows("\nsleep 1000")
	s.keys("C-c")
	s.shows("\nin box>")
	s.keys("clear; sh -c 'kill -USR1 $$'; echo rc=$?", "Enter")
	s.shows("rc=138")

	d.kill()
	s.keys("clear; echo typed $((6*7)) while it was dead", "Enter")
	d.start()
	s.shows("typed 42 while it was dead")

	s.keys("C-p", "C-q")
	s.shows("host>")
	s.clear("host>")
	s.keys("clear; agbox attach $(agbox execs box | awk '/env/ {print $1}')", "Enter")
	s.shows("in box>")
	s.keys("clear; exit 7", "Enter")
	s.shows("host>")
	s.keys("echo rc=$?; stty -a | grep -o '[-]*echo '", "Enter")
	s.shows("rc=7\necho")
	d.remove(id)
}
