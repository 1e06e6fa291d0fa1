//go:build docker

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/host/naming"
)

// client returns a client with patience.
func (d *daemon) client() *client.Client {
	d.Helper()
	c := must(client.DialWith(d.home+"/run/agbox/agboxd.sock", client.Options{Patience: 30 * time.Second}))(d)
	d.Cleanup(func() { _ = c.Close() })
	return c
}

// local runs a script of this host in a directory and returns its output.
func local(t testing.TB, dir, script string) string {
	t.Helper()
	cmd := exec.Command("bash", "-ec", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// A tree with everything that cp -a keeps goes into a sandbox and back, as a tree and as a tar stream.
func TestATreeThereAndBackEqualsCopyWithArchive(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	d.await(d.named("web", &agboxv1.CreateSpec{}), ready)
	dir := t.TempDir()
	local(t, dir, `mkdir -p src/a/b src/empty src/ro; cd src
		echo content > a/b/file; chmod 640 a/b/file; ln a/b/file 'a/hard link'; ln -s b/file a/rel; ln -s /etc/passwd abs; ln -s nowhere dangling
		printf x > $'new\nline'; printf y > $'bad\xffbyte'; printf z > -rf; touch suid; chmod 6755 suid; mkfifo fifo
		truncate -s 5M sparse; printf end >> sparse; echo 8 > ro/f; chmod 555 ro
		p=.; for i in $(seq 100); do p=$p/level-$i; done; mkdir -p "$p"; echo deep > "$p/bottom"
		chown 1234:4321 a/b; chown -h 7:8 dangling; touch -hd '2001-02-03 04:05:06.123456789' dangling a/b/file a/b a fifo ro .`)
	const describe = `find . -type d -printf '%P %y %m %U:%G %T@\n' -o -printf '%P %y %m %U:%G %T@ %s %n %l\n' | sort; find . -type f -print0 | sort -z | xargs -0 sha256sum`
	want := local(t, dir+"/src", describe)
	d.agbox("cp", "-a", "-u", "root", dir+"/src", "web:/tmp/in")
	d.agbox("cp", "-a", "-u", "root", "web:/tmp/in", dir+"/back")
	if got := local(t, dir+"/back", describe); got != want {
		t.Errorf("the tree came back as\n%s\nand was\n%s", got, want)
	}
	local(t, dir, "cp -a src copy && mkdir tar")
	if got := local(t, dir+"/copy", describe); got != want {
		t.Errorf("cp -a made\n%s", got)
	}
	local(t, dir, fmt.Sprintf(`XDG_RUNTIME_DIR=%s/run %s/agbox cp -u root web:/tmp/in - | tar -C tar -xpf -`, d.home, binaries))
	if got := local(t, dir+"/tar/in", describe); got != want {
		t.Errorf("tar made\n%s", got)
	}
}

// pattern is n bytes that differ from place to place.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 7)
	}
	return b
}

// Whatever dies in the middle of a write, the file is the old or the new one, nothing is left beside it, and the client learns it.
func TestDeathsInTheMiddleOfFileCalls(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.named("web", &agboxv1.CreateSpec{})
	d.await(id, ready)
	c := d.client()
	put := func(r io.Reader) error {
		_, err := c.WriteFile(d.ctx(), &agboxv1.WriteFileStart{SandboxId: id, Path: "/tmp/d/file", MakeParents: true}, r)
		return err
	}
	must(0, put(strings.NewReader("old")))(t)
	for name, kill := range map[string]func(){
		"the daemon": d.restart,
		"the worker": func() {
			d.sh(id, `for p in /proc/[0-9]*; do case $(tr '\0' ' ' <$p/cmdline) in agbox-shim\ serve*) kill -9 ${p#/proc/}; esac; done`)
		},
		"PID 1": func() { d.docker("kill", naming.Primary(id)) },
	} {
		r, w := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- put(r) }()
		must(w.Write(pattern(4 << 20)))(t) // more than the buffers on the way hold
		kill()
		go func() { _, _ = w.Write(pattern(1 << 20)); w.Close() }()
		if err := <-ended; client.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		r.Close()
		if name == "PID 1" {
			d.await(id, failed)
			must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id, Recover: true}))(t)
			d.await(id, ready)
		}
		if got := d.sh(id, "head -c 100 /tmp/d/file; ls -A /tmp/d"); got != "oldfile\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
	must(0, put(strings.NewReader("new")))(t)
	if got := d.sh(id, "cat /tmp/d/file"); got != "new" {
		t.Errorf("%q", got)
	}
	// A large file: the copy continues over a restart of the daemon, in both directions.
	dir := t.TempDir()
	big := pattern(192 << 20)
	must(0, os.WriteFile(dir+"/big", big, 0o600))(t)
	for _, args := range [][]string{{"cp", dir + "/big", "web:/tmp/big"}, {"cp", "web:/tmp/big", dir + "/back"}} {
		var out bytes.Buffer
		cmd := exec.Command(filepath.Join(binaries, "agbox"), args...)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+d.home+"/run")
		cmd.Stdout, cmd.Stderr = &out, &out
		must(0, cmd.Start())(t)
		time.Sleep(150 * time.Millisecond) // any moment will do
		d.restart()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out.String())
		}
	}
	if back := must(os.ReadFile(dir + "/back"))(t); !bytes.Equal(back, big) {
		t.Error("the large file differs")
	}
	if got := local(t, dir, "ls -A") + d.sh(id, "ls -A /tmp"); got != "back\nbig\nbig\nd\n" {
		t.Errorf("left: %q", got)
	}
}

// 2,000 connections at once, with half-close, a refusal, and a restart of the daemon.
func TestForwardedPorts(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.named("web", &agboxv1.CreateSpec{})
	d.await(id, ready)
	d.agbox("cp", filepath.Join(binaries, "echo"), "web:/tmp/")
	d.exec(id, "/tmp/echo", "7000")
	cmd := exec.Command(filepath.Join(binaries, "agbox"), "port-forward", "web", ":7000", ":7001")
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+d.home+"/run")
	var errs logFile
	cmd.Stderr = &errs
	out := must(cmd.StdoutPipe())(t)
	must(0, cmd.Start())(t)
	defer func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }()
	var echo, none string
	if _, err := fmt.Fscanf(out, "forwarding %s -> 7000\nforwarding %s -> 7001\n", &echo, &none); err != nil {
		t.Fatal(err)
	}
	dial := func(address string) *net.TCPConn {
		t.Helper()
		return must(net.Dial("tcp", address))(t).(*net.TCPConn)
	}
	d.eventually("the server listens", func() error {
		c := dial(echo)
		defer c.Close()
		_, _ = c.Write([]byte("x"))
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	})
	const n = 2000
	conns := make([]*net.TCPConn, n)
	var all sync.WaitGroup
	for i := range conns {
		conns[i] = dial(echo)
		all.Go(func() { // all stay open
			text := fmt.Sprintf("connection %d", i)
			_, _ = io.WriteString(conns[i], text)
			got := make([]byte, len(text))
			_ = conns[i].SetReadDeadline(time.Now().Add(patience))
			if _, err := io.ReadFull(conns[i], got); err != nil || string(got) != text {
				t.Errorf("%d: %q, %v", i, got, err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.Fatal(errs.tail(1000))
	}
	for i, c := range conns {
		_, _ = c.Write([]byte("the end"))
		must(0, c.CloseWrite())(t)
		if got, err := io.ReadAll(c); string(got) != "the end" || err != nil {
			t.Fatalf("%d after half-close: %q, %v", i, got, err)
		}
		c.Close()
	}
	refused := dial(none)
	defer refused.Close()
	if got, err := io.ReadAll(refused); len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
	d.eventually("the refusal is reported", func() error {
		if text := errs.tail(10000); strings.Count(text, "nothing listens on port 7001 of the sandbox\n") != 1 {
			return errors.New(text)
		}
		return nil
	})
	before := dial(echo)
	defer before.Close()
	d.restart()
	_ = before.SetReadDeadline(time.Now().Add(patience))
	if _, err := before.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived its daemon")
	}
	d.eventually("new connections work", func() error {
		c := dial(echo)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = c.Write([]byte("x"))
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	})
}

// The files of a stopped sandbox are read through the engine.
func TestFilesOfAStoppedSandbox(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.named("web", &agboxv1.CreateSpec{})
	d.await(id, ready)
	d.sh(id, "mkdir -p /tmp/d/e; echo hello > /tmp/d/e/f; ln -s e/f /tmp/d/link; ln -s /etc/hostname /tmp/d/outside")
	d.stopBox(id)
	d.await(id, stopped)
	if got := d.agbox("cat", "web", "/tmp/d/link"); got != "hello\n" {
		t.Errorf("%q", got)
	}
	if got := d.agbox("ls", "-R", "web", "/tmp/d"); got != "e\ne/f\nlink\noutside\n" {
		t.Errorf("%q", got)
	}
	dir := t.TempDir()
	d.agbox("cp", "web:/tmp/d", dir)
	if got := local(t, dir, "cat d/e/f; readlink d/outside"); got != "hello\n/etc/hostname\n" {
		t.Errorf("%q", got)
	}
	_, err := d.client().WriteFile(d.ctx(), &agboxv1.WriteFileStart{SandboxId: id, Path: "/tmp/x"}, strings.NewReader("x"))
	if client.Reason(err) != "SANDBOX_NOT_READY" {
		t.Errorf("%v", err)
	}
}

// The targets of speed, measured; only those that compare with docker cp in the same run can fail on a busy machine.
func TestSpeedOfFiles(t *testing.T) {
	d := newDaemon(t, "", "")
	id := d.named("web", &agboxv1.CreateSpec{})
	d.await(id, ready)
	c := d.client()
	median := func(n int, f func(context.Context)) time.Duration {
		var all []time.Duration
		for range n {
			start := time.Now()
			f(d.ctx())
			all = append(all, time.Since(start))
		}
		for i := range all {
			for j := range i {
				if all[i] < all[j] {
					all[i], all[j] = all[j], all[i]
				}
			}
		}
		return all[n/2]
	}
	big := pattern(8 << 20)
	put := func(ctx context.Context, path string, data []byte) {
		must(c.WriteFile(ctx, &agboxv1.WriteFileStart{SandboxId: id, Path: path}, bytes.NewReader(data)))(t)
	}
	put(d.ctx(), "/tmp/small", big[:1024])
	t.Logf("write 8 MiB: %v", median(20, func(ctx context.Context) { put(ctx, "/tmp/big", big) }))
	t.Logf("read 1 KiB: %v", median(50, func(ctx context.Context) {
		f := must(c.OpenFile(ctx, &agboxv1.ReadFileRequest{SandboxId: id, Path: "/tmp/small"}))(t)
		must(io.Copy(io.Discard, f))(t)
		f.Close()
	}))
	dir := t.TempDir()
	local(t, dir, "mkdir many; cd many; for i in $(seq 10000); do echo $i > $i; done")
	start := time.Now()
	d.docker("cp", dir+"/many", naming.Primary(id)+":/tmp/theirs")
	theirs := time.Since(start)
	start = time.Now()
	d.agbox("cp", dir+"/many", "web:/tmp/ours")
	ours := time.Since(start)
	t.Logf("10,000 files: docker cp %v, agbox cp %v", theirs, ours)
	if got := d.sh(id, "ls /tmp/ours | wc -l; cat /tmp/ours/10000"); got != "10000\n10000\n" {
		t.Errorf("%q", got)
	}
}
