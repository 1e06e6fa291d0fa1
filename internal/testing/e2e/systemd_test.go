//go:build docker

package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// installed is an installation by "make install" at the paths that it has on a host, in a mount namespace of its own without an engine.
type installed struct {
	testing.TB
	holder *exec.Cmd // keeps the namespace
	unit   map[string][]string
}

const (
	unitFile     = "/etc/systemd/system/agboxd.service"
	serviceGroup = "agbox-users"
	serviceGID   = "7791"
	strangersGID = "7792"
)

// makeInstall installs below a directory and mounts its parts where the unit expects them. systemd's directories are made as the unit says.
func makeInstall(t *testing.T) *installed {
	t.Helper()
	dest := t.TempDir()
	makeTarget(t, "install", dest)
	script := `set -e
cp -a /etc "$0/etc.host"
cp -a "$0/etc/." "$0/etc.host/"
echo ` + serviceGroup + `:x:` + serviceGID + `: >> "$0/etc.host/group"
mount --bind "$0/etc.host" /etc
mount --bind "$0/usr/local/bin" /usr/local/bin
mount --bind "$0/var/lib" /var/lib
mount -t tmpfs tmpfs /run
mkdir -m 700 /run/agbox
echo mounted
exec sleep infinity`
	holder := exec.Command("sh", "-c", script, dest)
	holder.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	holder.Stderr = os.Stderr
	out := must(holder.StdoutPipe())(t)
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "mounted\n" {
		t.Fatalf("%q %v", line, err)
	}
	return &installed{TB: t, holder: holder, unit: parseUnit(string(must(os.ReadFile(filepath.Join(dest, unitFile)))(t)))}
}

func makeTarget(t *testing.T, target, dest string) string {
	t.Helper()
	out, err := exec.Command("make", "-C", "../../..", "--no-print-directory", target, "DESTDIR="+dest, "BIN="+binaries).CombinedOutput()
	if err != nil {
		t.Fatalf("make %s: %v\n%s", target, err, out)
	}
	return string(out)
}

func parseUnit(text string) map[string][]string {
	unit := map[string][]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			unit[key] = append(unit[key], strings.Fields(value)...)
		}
	}
	return unit
}

// in is a command inside the installation with exactly this environment.
func (i *installed) in(env []string, args ...string) *exec.Cmd {
	enter := []string{"-t", fmt.Sprint(i.holder.Process.Pid), "-m", "env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
	return exec.Command("nsenter", append(append(enter, env...), args...)...)
}

// run runs a command and returns its output; it must succeed.
func (i *installed) run(env []string, args ...string) string {
	i.Helper()
	out, err := i.in(env, args...).CombinedOutput()
	if err != nil {
		i.Fatalf("%v %v: %v\n%s", env, args, err, out)
	}
	return string(out)
}

// start runs the unit's ExecStart with its Environment and returns a function that stops it.
func (i *installed) start() (stop func()) {
	i.Helper()
	var log bytes.Buffer
	cmd := i.in(i.unit["Environment"], i.unit["ExecStart"]...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		i.Fatal(err)
	}
	i.Cleanup(func() { _ = cmd.Process.Kill() })
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			i.Errorf("the service ended with %v\n%s", err, log.String())
		}
	}
}

// shells are environments of root's shells: by sudo, by a login, with a desktop's variables.
var shells = map[string][]string{
	"bare":    {"HOME=/root"},
	"login":   {"HOME=/root", "XDG_RUNTIME_DIR=/run/user/0"},
	"desktop": {"HOME=/home/u", "XDG_RUNTIME_DIR=/run/user/1000", "XDG_DATA_HOME=/home/u/.local/share", "XDG_CONFIG_HOME=/home/u/.config"},
}

func TestTheServiceAsInstalledIsFoundFromAnyShell(t *testing.T) {
	t.Parallel()
	i := makeInstall(t)
	if out := i.run(nil, "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unitFile); strings.Contains(out, "agboxd.service") {
		t.Errorf("systemd-analyze: %s", out)
	}
	i.run(nil, "sh", "-c", `printf '[http]\nlisten = "off"\n[log]\nlevel = "warn"\n[docker]\nhost = "unix:///run/no-engine.sock"\n' > /etc/agents-sandbox/config.toml`)
	stop := i.start()
	for name, env := range shells {
		if out := i.run(env, "agbox", "version"); !strings.Contains(out, "server: agboxd") {
			t.Errorf("%s: %s", name, out)
		}
		out := i.run(env, "agboxd", "config", "show")
		for _, want := range []string{"database /var/lib/agents-sandbox/ids.db", `level = "warn" # /etc/agents-sandbox/config.toml`, `exec_output_root = "/var/lib/agents-sandbox/exec-logs"`} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: config show lacks %q\n%s", name, want, out)
			}
		}
		if out, err := i.in(env, "agboxd", "db", "compact").CombinedOutput(); err == nil || !strings.Contains(string(out), "lock /run/agbox/agboxd.lock") {
			t.Errorf("%s: beside the service: %v %s", name, err, out)
		}
	}
	i.run(shells["bare"], "agbox", "backup", "/var/lib/records.tar")
	stop()
	for name, env := range shells {
		if out := i.run(env, "agboxd", "db", "check"); out != "/var/lib/agents-sandbox/ids.db: ok\n" {
			t.Errorf("%s: %s", name, out)
		}
		if out := i.run(env, "agboxd", "restore", "/var/lib/records.tar"); !strings.Contains(out, "is restored to /var/lib/agents-sandbox/ids.db") {
			t.Errorf("%s: %s", name, out)
		}
	}
	// Root has data of its own as well: which is meant must be said.
	i.run(nil, "mkdir", "-p", "/run/own/agents-sandbox")
	own := []string{"HOME=/root", "XDG_RUNTIME_DIR=/run/own", "XDG_DATA_HOME=/run/own"}
	if out, err := i.in(own, "agboxd", "restore", "/var/lib/records.tar").CombinedOutput(); err == nil || !strings.Contains(string(out), "--system for the first or --user for the second") {
		t.Errorf("two places: %v %s", err, out)
	}
	if out := i.run(own, "agboxd", "restore", "--user", "/var/lib/records.tar"); !strings.Contains(out, "is restored to /run/own/agents-sandbox/ids.db") {
		t.Errorf("--user: %s", out)
	}
	if out := i.run(own, "agboxd", "db", "check", "--system"); out != "/var/lib/agents-sandbox/ids.db: ok\n" {
		t.Errorf("--system: %s", out)
	}
}

func TestAGroupMayUseTheServicesSocket(t *testing.T) {
	t.Parallel()
	i := makeInstall(t)
	i.run(nil, "sh", "-c", `printf '[http]\nlisten = "off"\n[socket]\ngroup = "`+serviceGroup+`"\n[docker]\nhost = "unix:///run/no-engine.sock"\n' > /etc/agents-sandbox/config.toml`)
	stop := i.start()
	i.run(shells["bare"], "agbox", "version")
	if got := i.run(nil, "stat", "-c", "%a %g", "/run/agbox", "/run/agbox/agboxd.sock", "/run/agbox/agboxd.lock"); got != "710 "+serviceGID+"\n660 "+serviceGID+"\n600 0\n" {
		t.Errorf("permissions: %q", got)
	}
	env := []string{"HOME=/nowhere", "XDG_RUNTIME_DIR=/run/user/7790"}
	as := func(group string) []string {
		return []string{"setpriv", "--reuid=7790", "--regid=" + group, "--clear-groups", "agbox", "version"}
	}
	if out := i.run(env, as(serviceGID)...); !strings.Contains(out, "server: agboxd") {
		t.Errorf("a member: %s", out)
	}
	out, err := i.in(env, as(strangersGID)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "/run/agbox/agboxd.sock") || !strings.Contains(string(out), "join the group of its socket.group") {
		t.Errorf("a stranger: %v %s", err, out)
	}
	stop()
	i.run(nil, "sh", "-c", `printf '[http]\nlisten = "off"\n[socket]\ngroup = "no-such-group"\n' > /etc/agents-sandbox/config.toml`)
	if out, err := i.in(shells["bare"], "agboxd", "config", "check").CombinedOutput(); err == nil || !strings.Contains(string(out), `socket.group: "no-such-group" is not a group of this host`) {
		t.Errorf("an unknown group: %v %s", err, out)
	}
}

func TestUninstallKeepsDataAndSaysWhatStays(t *testing.T) {
	t.Parallel()
	dest := t.TempDir()
	makeTarget(t, "install", dest)
	kept := filepath.Join(dest, "var/lib/agents-sandbox/ids.db")
	if err := os.WriteFile(kept, []byte("records"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := makeTarget(t, "uninstall", dest)
	for _, want := range []string{"/var/lib/agents-sandbox", "/etc/agents-sandbox", "agbox-marker-"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say that %s stays: %s", want, out)
		}
	}
	var files []string
	_ = filepath.WalkDir(dest, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if len(files) != 1 || files[0] != kept {
		t.Errorf("files left: %v", files)
	}
}
