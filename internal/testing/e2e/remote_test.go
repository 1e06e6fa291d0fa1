//go:build docker

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Numbers of the Unix users of these tests, which exist only in the mount namespaces of their processes.
const (
	farUser     = "agbox-far"
	farUID      = 7793
	socketGroup = 7791
)

// site is a daemon, and a Unix user whose only right is its socket, by an sshd on loopback that runs as that user. On the near side agbox
// runs as the same user without the group: it can reach the daemon through ssh only, and no file of the daemon.
type sshSite struct {
	*daemon
	dir  string // the user's
	port string
	sshd *exec.Cmd
	said *logFile // by sshd
}

// newSSHSite starts the daemon and the sshd.
func newSSHSite(t *testing.T) *sshSite {
	t.Helper()
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.conf = fmt.Sprintf("[socket]\ngroup = \"%d\"\n", socketGroup)
	s := &sshSite{daemon: d, dir: must(os.MkdirTemp("", "agbox-far-"))(t)}
	t.Cleanup(func() { _ = os.RemoveAll(s.dir) })
	s.check(os.Chmod(s.dir, 0o755), os.MkdirAll(d.home+"/run", 0o711), os.Chmod(d.home, 0o711)) // the way to the socket, as /run of a service
	d.start()
	s.prepareUser()
	s.startSSHD()
	return s
}

func (s *sshSite) check(errs ...error) {
	s.Helper()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
}

func (s *sshSite) write(name, text string, mode os.FileMode) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	s.check(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode), os.Chown(path, farUID, farUID))
	return path
}

// prepareUser makes the user's files: keys, the programs of both sides, and what the namespaces see as /etc/passwd and /etc/group.
func (s *sshSite) prepareUser() {
	s.Helper()
	for _, program := range []string{"agbox", "agboxd"} {
		s.write("bin/"+program, s.read(filepath.Join(binaries, program)), 0o755)
	}
	user := fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", farUser, farUID, farUID, s.dir)
	s.write("passwd", s.read("/etc/passwd")+user, 0o644)
	s.write("group", s.read("/etc/group")+fmt.Sprintf("%s:x:%d:\nagbox-socket:x:%d:%s\n", farUser, farUID, socketGroup, farUser), 0o644)
	for _, key := range []string{"host", "user"} {
		path := filepath.Join(s.dir, key)
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path).CombinedOutput()
		if err != nil {
			s.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
		s.check(os.Chown(path, farUID, farUID))
	}
	s.check(os.Chown(s.dir, farUID, farUID))
}

// as returns a command of the user, with more groups, in a mount namespace where the user exists.
func (s *sshSite) as(groups string, env []string, args ...string) *exec.Cmd {
	script := `mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group && exec setpriv "$@"`
	user := []string{"-c", script, s.dir, fmt.Sprint("--reuid=", farUID), fmt.Sprint("--regid=", farUID), groups}
	cmd := exec.Command("sh", append(user, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	cmd.Env = append([]string{"HOME=" + s.dir, "PATH=" + s.dir + "/bin:/usr/local/bin:/usr/bin:/bin"}, env...)
	cmd.Dir = s.dir
	return cmd
}

// startSSHD runs an sshd of its own, which logs in that one user.
func (s *sshSite) startSSHD() {
	s.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(s)
	_, s.port, _ = net.SplitHostPort(l.Addr().String())
	s.check(l.Close())
	config := s.write("sshd_config", fmt.Sprintf(`Port %s
ListenAddress 127.0.0.1
HostKey %[2]s/host
PidFile none
AuthorizedKeysFile %[2]s/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowUsers %[3]s
SetEnv PATH=%[2]s/bin:/usr/bin:/bin
`, s.port, s.dir, farUser), 0o644)
	// The user's own ssh, with what ~/.ssh/config would have: ssh takes the home from passwd.
	s.write(".ssh/config", fmt.Sprintf("Host *\n  IdentityFile %[1]s/user\n  IdentitiesOnly yes\n  UserKnownHostsFile %[1]s/known\nHost far\n  HostName 127.0.0.1\n  Port %[2]s\n",
		s.dir, s.port), 0o600)
	s.write("known", fmt.Sprintf("[127.0.0.1]:%s %s", s.port, s.read(s.dir+"/host.pub")), 0o600)
	program, env := "/usr/sbin/sshd", []string{}
	if _, err := os.Stat(program); err != nil { // unpacked by hack/test-tools.sh
		root := must(filepath.Abs("../../../bin/sshd"))(s)
		program, env = filepath.Join(s.dir, "bin/sshd"), []string{"LD_LIBRARY_PATH=" + s.dir + "/lib"}
		s.write("bin/sshd", s.read(root+"/usr/sbin/sshd"), 0o755)
		s.write("lib/libwrap.so.0", s.read(root+"/usr/lib/libwrap.so.0"), 0o644)
	}
	s.sshd = s.as(fmt.Sprint("--groups=", socketGroup), env, program, "-D", "-e", "-f", config)
	stderr := must(s.sshd.StderrPipe())(s)
	s.check(s.sshd.Start())
	s.said = &logFile{}
	listens, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(stderr)
		for first := true; lines.Scan(); {
			fmt.Fprintln(s.said, lines.Text())
			if first && strings.Contains(lines.Text(), "Server listening on") {
				first = false
				close(listens)
			}
		}
	}()
	s.Cleanup(func() {
		_ = s.sshd.Process.Signal(syscall.SIGTERM)
		<-ended // with the last session, too
		_ = s.sshd.Wait()
		if s.Failed() {
			s.Logf("log of sshd:\n%s", s.said.tail(4000))
		}
	})
	select {
	case <-listens:
	case <-ended:
		s.Fatalf("sshd does not start: %s", s.said.tail(2000))
	case <-time.After(patience):
		s.Fatalf("sshd does not listen: %s", s.said.tail(2000))
	}
}

func (s *sshSite) socket() string { return s.home + "/run/agbox/agboxd.sock" }

func (s *sshSite) url() string { return "ssh://far" + s.socket() }

// agbox returns a command of the near side.
func (s *sshSite) agbox(args ...string) *exec.Cmd {
	return s.as("--clear-groups", []string{"AGBOX_HOST=" + s.url(), "GORACE=atexit_sleep_ms=0"}, append([]string{s.dir + "/bin/agbox"}, args...)...)
}

// run runs agbox on the near side and returns what it prints, and its exit code.
func (s *sshSite) run(stdin string, args ...string) (out, errs string, code int) {
	s.Helper()
	cmd := s.agbox(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	s.check(cmd.Start())
	watchdog := time.AfterFunc(patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer watchdog.Stop()
	_ = cmd.Wait()
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// TestEveryVerbOverSSH: the user has no right on either side but to the socket, through ssh.
func TestEveryVerbOverSSH(t *testing.T) {
	t.Parallel()
	s := newSSHSite(t)
	source := t.TempDir() // the daemon's path
	manifest := fmt.Sprintf("apiVersion: agbox/v1\nkind: Sandbox\nmetadata: {name: web}\nspec: {image: %q, mounts: [{source: %q, target: /data}], volumes: {v: {target: /v}}}\n", baseImage, source)
	for _, step := range []struct {
		stdin string
		args  string
		want  string
	}{
		{"", "version", "server: agboxd"},
		{manifest, "apply -f - --dry-run", "sandbox/web"},
		{manifest, "apply -f - --wait", "sandbox/web ready"},
		{strings.Replace(manifest, "image:", "idle_ttl: 2h, image:", 1), "diff -f -", "idle_ttl"},
		{"", "get", "READY"},
		{"", "get web -o yaml", "source: " + source},
		{"", "describe web", "web"},
		{"", "explain web", "web"},
		{"", "wait web --for ready", "ready"},
		{"", "timeout web 1h", "web"},
		{"", "events web", "SANDBOX_READY"},
		{"", "exec web --detach -- sh -c 'exit 0'", ""},
		{"", "execs --all", "FINISHED"},
		{"", "pause web", "paused"},
		{"", "resume web", "ready"},
		{"", "stop web", "stopped"},
		{"", "resume web", "ready"},
		{"", "volume ls", "web/v"},
		{"", "agent create coder --sandbox web --stopped -- true", "coder"},
		{"", "agent get", "STOPPED"},
		{"", "agent describe coder", "coder"},
		{"", "agent prompt coder hello", ""},
		{"", "agent conversation coder", ""},
		{"", "agent delete coder --wait", "deleted"},
		{"", "gc --dry-run", ""},
		{"", "backup kept", "backup kept written"},
		{"", "backup verify kept", "complete"},
		{"", "drain --mode detach", ""},
		{"", "undrain", ""},
		{"", "engine confirm", "confirmed"},
		{"", "delete web --volumes --wait", "deleted"},
	} {
		out, errs, code := s.run(step.stdin, words(step.args)...)
		if code != 0 && step.args != "diff -f -" || !strings.Contains(out, step.want) {
			t.Errorf("agbox %s: code %d, stdout %q, stderr %q", step.args, code, out, errs)
		}
	}
	info := must(os.Stat(s.dir + "/kept"))(t) // a file of the client's
	if stat := info.Sys().(*syscall.Stat_t); stat.Uid != farUID || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is user %d's, %v", stat.Uid, info.Mode())
	}
}

// words splits a command line; single quotes keep spaces.
func words(line string) (list []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			list = append(list, part)
		} else {
			list = append(list, strings.Fields(part)...)
		}
	}
	return list
}

func TestErrorsOverSSHSayWhy(t *testing.T) {
	t.Parallel()
	s := newSSHSite(t)
	for _, tc := range []struct {
		name, want string
		args       []string
	}{
		{"nobody listens", "ssh: connect to host 127.0.0.1 port 1: Connection refused", []string{"--host", "ssh://127.0.0.1:1", "get"}},
		{"an unknown user", "Permission denied (publickey)", []string{"--host", "ssh://nobody@127.0.0.1:" + s.port, "get"}},
		{"no socket", "no agboxd at ssh://far/nowhere/s: no agboxd at /nowhere/s: no such socket", []string{"--host", "ssh://far/nowhere/s", "get"}},
		{"no daemon at the usual path", "no agboxd at ssh://far: ", []string{"--host", "ssh://far", "get", "-w"}},
		{"a home of the near side", `"~" cannot be expanded`, []string{"apply", "-f", s.write("home.yaml", "apiVersion: agbox/v1\nkind: Sandbox\nmetadata: {name: h}\nspec: {image: x, mounts: [{source: ~/x, target: /x}]}\n", 0o644)}},
		{"a path of the near side", "near-only", []string{"apply", "-f", s.write("near.yaml", "apiVersion: agbox/v1\nkind: Sandbox\nmetadata: {name: h}\nspec: {image: x, mounts: [{source: /near-only, target: /x}]}\n", 0o644)}},
	} {
		begun := time.Now()
		out, errs, code := s.run("", tc.args...)
		if code != 1 || out != "" || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: code %d, %q, %q", tc.name, code, out, errs)
		}
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("%s: after %s", tc.name, took)
		}
	}
	// without the group there is no way, on this side neither
	if _, errs, code := s.run("", "--host", s.socket(), "get"); code != 1 || !strings.Contains(errs, "join the group of its socket.group") {
		t.Errorf("without the group: code %d, %q", code, errs)
	}
	// nothing the shell on the far side would read
	for _, path := range []string{"/a b", "/$(touch pwned)", "/;touch pwned", "/`touch pwned`", "/|touch pwned", "/&touch pwned", "/*"} {
		if _, errs, code := s.run("", "--host", "ssh://far"+path, "get"); code != 1 || !strings.Contains(errs, "no agboxd at "+path+": no such socket") {
			t.Errorf("%s: code %d, %q", path, code, errs)
		}
	}
	if found, _ := filepath.Glob(s.dir + "/pwned*"); len(found) > 0 {
		t.Errorf("the shell on the far side made %q", found)
	}
}

// TestAFollowingCommandOutlivesEveryDeathOverSSH kills ssh, the far side and the daemon under "get -w" and "events -f".
func TestAFollowingCommandOutlivesEveryDeathOverSSH(t *testing.T) {
	t.Parallel()
	s := newSSHSite(t)
	id := s.create(nil)
	s.await(id, ready)
	watch, events := s.follow("get", "-w"), s.follow("events", id, "-f")
	watch.await(t, "READY")
	events.await(t, "SANDBOX_READY")
	for _, kill := range []func(){
		func() { s.killAll("ssh") },
		func() { s.killAll("agboxd dial-stdio") },
		func() { s.restart() },
	} {
		kill()
		other := s.create(nil)
		watch.await(t, other[:8])
	}
	if _, err := s.StopSandbox(s.ctx(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	events.await(t, "SANDBOX_STOPPED")
	if n := strings.Count(events.out.tail(1<<20), "SANDBOX_READY"); n != 1 {
		t.Errorf("an event came %d times", n)
	}
	// ^C, as a terminal sends it: to the whole group
	for _, f := range []*followed{watch, events} {
		if err := syscall.Kill(-f.cmd.Process.Pid, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if code := f.ended(t); code != 130 {
			t.Errorf("after ^C %v ends with %d", f.cmd.Args, code)
		}
	}
	s.eventually("no ssh is left", func() error {
		if left := s.processes("ssh"); len(left) > 0 {
			return fmt.Errorf("processes %v", left)
		}
		if left := s.processes("agboxd dial-stdio"); len(left) > 0 {
			return fmt.Errorf("processes %v on the far side", left)
		}
		return nil
	})
}

// followed is an agbox that runs.
type followed struct {
	cmd  *exec.Cmd
	out  *logFile
	done chan struct{}
}

func (s *sshSite) follow(args ...string) *followed {
	s.Helper()
	f := &followed{cmd: s.agbox(args...), out: &logFile{}, done: make(chan struct{})}
	f.cmd.Stdout, f.cmd.Stderr = f.out, f.out
	s.check(f.cmd.Start())
	go func() { _ = f.cmd.Wait(); close(f.done) }()
	s.Cleanup(func() { _ = syscall.Kill(-f.cmd.Process.Pid, syscall.SIGKILL); <-f.done })
	return f
}

// await waits until the output has the text.
func (f *followed) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !strings.Contains(f.out.tail(1<<20), text) {
		select {
		case <-f.done:
			t.Fatalf("%v ended without %q: %s", f.cmd.Args, text, f.out.tail(4000))
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v does not print %q: %s", f.cmd.Args, text, f.out.tail(4000))
		}
		time.Sleep(20 * time.Millisecond) // polls: nothing announces output
	}
}

func (f *followed) ended(t *testing.T) int {
	t.Helper()
	select {
	case <-f.done:
	case <-time.After(patience):
		t.Fatalf("%v does not end: %s", f.cmd.Args, f.out.tail(4000))
	}
	return f.cmd.ProcessState.ExitCode()
}

// processes returns the processes of this site's user whose command line starts with a program and its words.
func (s *sshSite) processes(command string) (pids []int) {
	s.Helper()
	for _, dir := range must(filepath.Glob("/proc/[0-9]*"))(s) {
		line, err := os.ReadFile(dir + "/cmdline")
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		args[0] = filepath.Base(args[0])
		var pid int
		if _, err := fmt.Sscan(filepath.Base(dir), &pid); err != nil {
			continue
		}
		env, err := os.ReadFile(dir + "/environ")
		if err == nil && strings.HasPrefix(strings.Join(args, " ")+" ", command+" ") && bytes.Contains(env, []byte("PATH="+s.dir+"/bin:")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killAll kills such processes, of this site only.
func (s *sshSite) killAll(command string) {
	s.Helper()
	pids := s.processes(command)
	if len(pids) == 0 {
		s.Fatalf("no %s runs", command)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// TestCommandsShareAMasterOfSSH: as docs/remote.md advises.
func TestCommandsShareAMasterOfSSH(t *testing.T) {
	t.Parallel()
	s := newSSHSite(t)
	s.write(".ssh/config", s.read(s.dir+"/.ssh/config")+fmt.Sprintf("Host *\n  ControlMaster auto\n  ControlPath %s/cm\n  ControlPersist 10m\n", s.dir), 0o600)
	defer func() {
		if out, err := s.as("--clear-groups", nil, "ssh", "-O", "exit", "far").CombinedOutput(); err != nil {
			t.Errorf("end the master: %v\n%s", err, out)
		}
	}()
	for range 3 {
		begun := time.Now()
		if out, errs, code := s.run("", "version"); code != 0 || !strings.Contains(out, "server: agboxd") {
			t.Errorf("code %d, %q, %q", code, out, errs)
		}
		t.Logf("%s", time.Since(begun))
	}
	if n := strings.Count(s.said.tail(1<<20), "Accepted publickey"); n != 1 {
		t.Errorf("%d logins: %s", n, s.said.tail(4000))
	}
}

// TestSSHAsksOnTheTerminal: for the passphrase of a key. ^C there ends agbox and ssh.
func TestSSHAsksOnTheTerminal(t *testing.T) {
	t.Parallel()
	s := newSSHSite(t)
	out, err := exec.Command("ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", s.dir+"/user").CombinedOutput()
	if err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	s.check(os.Chown(s.dir+"/user", farUID, farUID))
	const prompt = "Enter passphrase for key"

	f, terminal := s.onTerminal("version")
	f.await(t, prompt)
	time.Sleep(6 * time.Second) // longer than the patience of calls: a user types slowly
	s.typed(terminal, "open sesame\n")
	f.await(t, "server: agboxd")
	if code := f.ended(t); code != 0 || strings.Contains(f.out.tail(1<<20), "sesame") || strings.Contains(f.out.tail(1<<20), "does not answer") {
		t.Errorf("code %d, %q", code, f.out.tail(1000))
	}

	f, terminal = s.onTerminal("get")
	f.await(t, prompt)
	s.typed(terminal, "\x03")
	if code := f.ended(t); code != 130 {
		t.Errorf("after ^C code %d, %q", code, f.out.tail(1000))
	}
	if attr := must(unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS))(t); attr.Lflag&unix.ECHO == 0 {
		t.Error("the terminal does not echo any more")
	}
	if left := s.processes("ssh"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	// while a shell completes, nothing asks
	f, _ = s.onTerminal("__complete", "stop", "")
	if f.ended(t); strings.Contains(f.out.tail(1000), prompt) {
		t.Errorf("a completion asks: %q", f.out.tail(1000))
	}
}

func (s *sshSite) typed(terminal *os.File, keys string) {
	s.Helper()
	_, err := terminal.WriteString(keys)
	s.check(err)
}

// onTerminal starts agbox with a terminal of its own, and returns the other end.
func (s *sshSite) onTerminal(args ...string) (*followed, *os.File) {
	s.Helper()
	master, slave := pseudoTerminal(s)
	defer slave.Close()
	s.check(slave.Chown(farUID, farUID))
	f := &followed{cmd: s.agbox(args...), out: &logFile{}, done: make(chan struct{})}
	f.cmd.Stdin, f.cmd.Stdout, f.cmd.Stderr = slave, slave, slave
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setsid: true, Setctty: true}
	s.check(f.cmd.Start())
	go func() { _, _ = io.Copy(f.out, master) }() // ends with the test's end of the terminal
	go func() { _ = f.cmd.Wait(); close(f.done) }()
	s.Cleanup(func() { _ = syscall.Kill(-f.cmd.Process.Pid, syscall.SIGKILL); <-f.done })
	return f, master
}
