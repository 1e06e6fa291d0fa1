//go:build docker

package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// testPrograms returns a directory with the static program lockgrabber, which attacks the shim from inside.
var testPrograms = sync.OnceValues(func() (string, error) {
	return build("lockgrabber", "./testdata/lockgrabber")
})

// newContainerWithPrograms returns a container with that program in /programs.
func newContainerWithPrograms(t testing.TB, options ...string) *container {
	t.Helper()
	dir, err := testPrograms()
	must(t, err)
	return newContainer(t, append(options, "-v", dir+":/programs:ro")...)
}

// TestContainerCommandsWinNoLock: a program that is not root tries to acquire the locks of 60 execs, and the lock of one whose supervisor
// is killed.
func TestContainerCommandsWinNoLock(t *testing.T) {
	t.Parallel()
	const execs = 60
	c := newContainerWithPrograms(t)
	grabber := c.request("/programs/lockgrabber", execjournal.ContainerLogs, fmt.Sprint(execs+2))
	grabber.User = "agbox"
	c.says(c.start(grabber), "up\n")
	lost := c.start(c.sh("echo up; sleep 1000"))
	c.says(lost, "up\n")
	var all []execjournal.Request
	for range execs {
		all = append(all, c.start(c.request("true")))
	}
	for _, r := range all {
		if j := c.ended(r); j.ExitCode != 0 {
			t.Errorf("%+v", j)
		}
	}
	c.killSupervisor(lost)
	c.phase(lost, execphase.Lost)
	if out, _ := c.logs(grabber); strings.Contains(out, "won") {
		t.Errorf("of %d execs it won %d locks:\n%s", execs, strings.Count(out, "won"), out)
	}
}

// killSupervisor sends KILL to the supervisor of r.
func (c *container) killSupervisor(r execjournal.Request) {
	c.Helper()
	c.killWhere(func(cmdline string) bool { return strings.HasSuffix(cmdline, "\x00"+r.ExecID) })
}

// TestContainerUsersOfOneGroupReadNoLogsOfOthers: two users of the image have one group, and other execs have numbers that passwd lacks.
func TestContainerUsersOfOneGroupReadNoLogsOfOthers(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	root := c.sh(`echo "ann:x:2001:50::/tmp:/bin/sh" >>/etc/passwd; echo "ben:x:2002:50::/tmp:/bin/sh" >>/etc/passwd; echo "staff:x:50:" >>/etc/group`)
	root.User = "root"
	c.do(root)
	for _, users := range [][2]string{{"ann", "ben"}, {"3001", "3002"}, {"3001:60", "3002:60"}, {"ann", "agbox:50"}, {"agbox", "ann"}} {
		theirs := c.sh("echo theirs; echo theirs >&2")
		theirs.User = users[0]
		if _, out := c.do(theirs); out != "theirs\ntheirs\n" {
			t.Fatalf("%s: %q", users[0], out)
		}
		for _, name := range []string{execjournal.StdoutName(theirs.ExecID), execjournal.StderrName(theirs.ExecID)} {
			reader := c.request("cat", execjournal.ContainerLogs+"/"+name)
			reader.User = users[1]
			if _, out := c.do(reader); !strings.Contains(strings.ToLower(out), "permission denied") {
				t.Errorf("%s reads %s of %s: %q", users[1], name, users[0], out)
			}
		}
	}
}

// TestContainerLogDirectoryIsRoots: a user other than root can read there only their own logs.
func TestContainerLogDirectoryIsRoots(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	mine, theirs := c.sh("echo mine; echo mine >&2"), c.sh("echo theirs; echo theirs >&2")
	theirs.User = "other"
	c.do(mine)
	c.do(theirs)
	dir := execjournal.ContainerLogs + "/"
	ask := func(script string) string {
		c.Helper()
		_, out := c.do(c.sh("cd " + dir + "; " + script))
		return out
	}
	if out := ask("cat " + execjournal.StdoutName(mine.ExecID) + " " + execjournal.StderrName(mine.ExecID)); out != "mine\nmine\n" {
		t.Errorf("his own logs: %q", out)
	}
	for _, name := range []string{
		execjournal.LockName(mine.ExecID), execjournal.JournalName(mine.ExecID), execjournal.JournalName(theirs.ExecID),
		execjournal.StdoutName(theirs.ExecID), execjournal.StderrName(theirs.ExecID),
	} {
		if out := ask("cat " + name); !strings.Contains(strings.ToLower(out), "permission denied") {
			t.Errorf("cat %s: %q", name, out)
		}
	}
	for _, script := range []string{
		"touch x", "mkdir x", "mkfifo x", "ln -s / x", "ln exec-1.stdout.log x", "rm -f exec-1.lock", "mv exec-1.journal x",
		"echo x >> exec-1.stdout.log", "chmod 666 exec-1.stdout.log", "chmod 777 .", "touch .exec-9.lock.tmp",
	} {
		if out := strings.ToLower(ask(script + " 2>&1; echo code $?")); !strings.Contains(out, "code 1") || !strings.Contains(out, "permi") {
			t.Errorf("%s: %q", script, out)
		}
	}
}

// TestContainerFilesOfADaemonThatIsNotRoot: files that the shim creates belong to the owner of the directory, who is the daemon's user.
func TestContainerFilesOfADaemonThatIsNotRoot(t *testing.T) {
	t.Parallel()
	t.Run("standard", func(t *testing.T) { filesOfADaemonThatIsNotRoot(t) })
	t.Run("hardened", func(t *testing.T) {
		filesOfADaemonThatIsNotRoot(t, hardenedOptions()...)
	})
}

func filesOfADaemonThatIsNotRoot(t *testing.T, options ...string) {
	c := newContainer(t, options...)
	must(t, os.Chown(c.paths.Logs, daemonUID, daemonUID))
	r := c.sh("echo x; sleep 1000")
	r.User = "other"
	c.says(c.start(r), "x\n")
	for name, mode := range map[string]uint32{
		execjournal.LockName(r.ExecID): 0o600, execjournal.JournalName(r.ExecID): 0o600, execjournal.StdoutName(r.ExecID): 0o640,
	} {
		var st syscall.Stat_t
		must(t, syscall.Stat(filepath.Join(c.paths.Logs, name), &st))
		if st.Uid != daemonUID || st.Mode&0o7777 != mode {
			t.Errorf("%s belongs to %d, mode %o", name, st.Uid, st.Mode&0o7777)
		}
	}
	c.cancel(r)
	c.ended(r)
	var st syscall.Stat_t
	must(t, syscall.Stat(filepath.Join(c.paths.Logs, execjournal.JournalName(r.ExecID)), &st))
	if st.Uid != daemonUID || st.Mode&0o7777 != 0o600 {
		t.Errorf("the end belongs to %d, mode %o", st.Uid, st.Mode&0o7777)
	}
}
