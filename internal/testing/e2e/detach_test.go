//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// pseudoTerminal returns both ends of a new terminal.
func pseudoTerminal(t testing.TB) (master, slave *os.File) {
	t.Helper()
	master = must(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { master.Close() })
	must(0, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))(t)
	n := must(unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN))(t)
	slave = must(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	return master, slave
}

func TestTheDetachKeysLeaveTheCommandRunningAndSaySo(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.named("web", &agboxv1.CreateSpec{})
	d.await(id, ready)
	master, slave := pseudoTerminal(t)
	cmd := exec.Command(filepath.Join(binaries, "agbox"), "exec", "-it", "web", "--", "sh", "-c", "echo up; exec cat")
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+d.home+"/run")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	before := must(unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS))(t)
	must(0, cmd.Start())(t)
	shown := &lockedBuffer{}
	go func() { _, _ = io.Copy(shown, master) }() // ends with the test's end of the terminal
	shows := func(want string) {
		t.Helper()
		d.eventually("the terminal shows "+want, func() error {
			if got := shown.String(); !strings.Contains(got, want) {
				return errors.New(got)
			}
			return nil
		})
	}
	shows("up")
	must(master.WriteString("\x10\x11"))(t) // ctrl-p, ctrl-q
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, shown.String())
	}
	active := must(d.ListActiveExecs(d.ctx(), &agboxv1.ListActiveExecsRequest{SandboxId: &id}))(t).GetExecs()
	if len(active) != 1 {
		t.Fatalf("active: %v", active)
	}
	e := active[0].GetExecId()
	shows("left exec " + e + ` running; "agbox attach ` + e + `" returns to it`)
	if after := must(unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS))(t); *after != *before {
		t.Errorf("the terminal was left as %+v, and was %+v", after, before)
	}
	slave.Close()
	d.remove(id)
}
