//go:build docker

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// write makes a file with its parents.
func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t testing.TB, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

func copies(list ...*agboxv1.CopySpec) *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{Image: baseImage, Copies: list}
}

func TestACopyOfALargeTreeWithLinksAndExcludes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	src := t.TempDir()
	const files, perDir = 20000, 500
	for i := range files {
		write(t, fmt.Sprintf("%s/many/%d/%d", src, i/perDir, i), "x")
	}
	write(t, src+"/sub/ünï cödé \n name", "odd\n")
	write(t, src+"/sub/run", "#!/bin/sh\n")
	write(t, src+"/node_modules/a/b", "no")
	write(t, src+"/sub/node_modules/c", "no")
	write(t, src+"/sub/a.log", "no")
	write(t, src+"/sub/keep.log", "yes")
	if err := os.Chmod(src+"/sub/run", 0o750); err != nil {
		t.Fatal(err)
	}
	link(t, src+"/sub/run", src+"/absolute")
	link(t, "../sub/run", src+"/sub/relative")
	link(t, "nowhere", src+"/sub/dangling")
	conf := filepath.Join(t.TempDir(), "conf")
	write(t, conf, "config\n")
	id := d.create(copies(
		&agboxv1.CopySpec{Source: src, Target: "/workspace/tree", ExcludePatterns: []string{"node_modules/", "*.log", "!keep.log"}},
		&agboxv1.CopySpec{Source: conf, Target: "/home/agbox/.config/deep/tool.conf"},
		&agboxv1.CopySpec{Source: conf, Target: "/workspace/conf"},
	))
	d.await(id, ready)
	for _, c := range [][2]string{
		{"find tree/many -type f | wc -l", fmt.Sprintln(files)},
		{"find tree -name node_modules -o -name '*.log'", "tree/sub/keep.log\n"},
		{"cat tree/sub/*name", "odd\n"},
		{"stat -c '%a %U' tree/sub/run", "750 agbox\n"},
		{"readlink tree/absolute; cat tree/absolute", "sub/run\n#!/bin/sh\n"},
		{"readlink tree/sub/relative; cat tree/sub/relative", "../sub/run\n#!/bin/sh\n"},
		{"readlink tree/sub/dangling", "nowhere\n"},
		{"id -un; touch tree/mine tree/sub/mine beside; echo more >>conf; rm -r tree/many/7; cat conf", "agbox\nconfig\nmore\n"},
		{"cd ~/.config/deep; cat tool.conf; echo x >tool.conf; touch beside; stat -c %U . ..", "config\nagbox\nagbox\n"},
	} {
		if got := d.sh(id, c[0]); got != c[1] {
			t.Errorf("%s: %q, not %q", c[0], got, c[1])
		}
	}
	d.remove(id)
}

func TestCopiesThatCanNotBeMadeAreRefusedByPath(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	fifo, outside, socket := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, fifo+"/a/file", "x")
	if err := syscall.Mkfifo(fifo+"/a/pipe", 0o666); err != nil {
		t.Fatal(err)
	}
	write(t, outside+"/file", "x")
	link(t, "/etc/passwd", outside+"/leads-out")
	l := must(net.Listen("unix", socket+"/sock"))(t)
	defer l.Close()
	for path, src := range map[string]string{"a/pipe": fifo, "leads-out": outside, "sock": socket} {
		start := time.Now()
		id := d.create(copies(&agboxv1.CopySpec{Source: src, Target: "/workspace/in"}))
		d.failsWith(id, "SANDBOX_CREATE_FAILED", "copies[0]", src, strconv.Quote(path))
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: it took %s", path, took)
		}
		d.awaitNothing(id)
		d.remove(id)
	}
	_, err := d.CreateSandbox(d.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: copies(&agboxv1.CopySpec{Source: fifo + "/absent", Target: "/in"})})
	if !isCode(err, codes.InvalidArgument) || !strings.Contains(status.Convert(err).Message(), fifo+"/absent") {
		t.Errorf("a source that is missing: %v", err)
	}
}

// Files of the daemon's user keep their owner in the sandbox. Here that is the user agbox, as on a host whose only user has
// its number.
const agboxUID = 1000

// toolHome is a daemon whose user has some tools.
func toolHome(t *testing.T) *daemon {
	if os.Getuid() != 0 {
		t.Skip("giving files another owner needs root")
	}
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	user := d.home + "/user"
	write(t, user+"/.claude/settings", "settings\n")
	write(t, user+"/.claude.json", "{}\n")
	write(t, user+"/.config/gh/hosts", "hosts\n")
	write(t, user+"/.ssh/known_hosts", "known\n")
	write(t, user+"/.ssh/id_secret", "secret\n")
	write(t, user+"/.npm/x", "x\n")
	agent := must(net.Listen("unix", user+"/agent.sock"))(t)
	t.Cleanup(func() { agent.Close() })
	go func() {
		for {
			c, err := agent.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("I am the agent\n"))
			c.Close()
		}
	}()
	err := filepath.WalkDir(user, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, agboxUID, agboxUID)
	})
	if err != nil || os.Chmod(d.home, 0o755) != nil {
		t.Fatal(err)
	}
	d.env = []string{"HOME=" + user, "SSH_AUTH_SOCK=" + user + "/agent.sock"}
	d.start()
	return d
}

func TestToolsOfTheHostAreThereAsTheTableSays(t *testing.T) {
	t.Parallel()
	d := toolHome(t)
	id := d.create(&agboxv1.CreateSpec{
		BuiltinTools: []string{"claude", "git", "npm"},
		Mounts:       []*agboxv1.MountSpec{{Source: filepath.Join(binaries, "dial"), Target: "/usr/bin/dial"}},
	})
	d.await(id, ready)
	if got := d.sh(id, "echo $SSH_AUTH_SOCK; dial $SSH_AUTH_SOCK"); got != "/ssh-agent\nI am the agent\n" {
		t.Errorf("the agent: %q", got)
	}
	got := d.sh(id, `cd ~; cat .claude/settings .claude.json .config/gh/hosts .ssh/known_hosts
		echo new >.claude/made; echo '{"a":1}' >.claude.json; echo more >>.ssh/known_hosts; touch .npm/y
		(echo x >.config/gh/hosts) 2>/dev/null || echo gh is read-only; ls -A .ssh`)
	if want := "settings\n{}\nhosts\nknown\ngh is read-only\nknown_hosts\n"; got != want {
		t.Errorf("got %q, not %q", got, want)
	}
	user := d.home + "/user"
	if got := d.read(user+"/.claude/made") + d.read(user+"/.claude.json") + d.read(user+"/.ssh/known_hosts"); got != "new\n{\"a\":1}\nknown\nmore\n" {
		t.Errorf("the host has %q", got)
	}
	d.halt(id)
	d.resume(id)
	d.sh(id, "dial /ssh-agent")
	d.remove(id)

	_, err := d.CreateSandbox(d.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: baseImage, BuiltinTools: []string{"npm", "codex"}}})
	if text := status.Convert(err).Message(); !isCode(err, codes.InvalidArgument) ||
		!strings.Contains(text, user+"/.codex") || !strings.Contains(text, user+"/.agents") || !strings.Contains(text, "builtin_tools[1]") {
		t.Errorf("a tool that the host does not have: %v", err)
	}
}
