package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-connections/nat"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

const (
	stdinBytes  = 256 << 20
	smallBytes  = 1 << 10
	largeBytes  = 8 << 20
	treeFiles   = 10_000
	tunnelBytes = 64 << 20
	tunnels     = 2000
	echoPort    = 7007
	// echoFlag makes this program, copied into a container, the server for the measurements of ports.
	echoFlag = "echo"
)

// The promised times, which are those of the machine of docs/benchmarks.md, and the promised ratio of copies of trees.
const (
	mostStdin      = stdinBytes * time.Second / 300e6
	mostKeystroke  = 2 * time.Millisecond
	mostSmallRead  = 3 * time.Millisecond
	mostLargeWrite = 60 * time.Millisecond
	mostTree       = 1
)

// box is a running container of one side.
type box interface {
	// stdin runs a command that reads n bytes of standard input.
	stdin(ctx context.Context, n int64) error
	// terminal runs a command that echoes what is typed.
	terminal(ctx context.Context) (net.Conn, error)
	read(ctx context.Context, path string) (n int64, err error)
	write(ctx context.Context, path string, data []byte) error
	copyIn(ctx context.Context, local, path string) error
	copyOut(ctx context.Context, path, local string) error
	// serve starts this program as the echo server.
	serve(ctx context.Context, program string) error
	dial(ctx context.Context) (net.Conn, error)
}

// measureInside measures streams, files and ports on both sides.
func measureInside(ctx context.Context, d *daemon, b *bare, rounds int) ([]row, error) {
	name := fmt.Sprintf("bench-%d-inside", os.Getpid())
	if err := errors.Join(d.create(ctx, name), b.createPublished(ctx, name)); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "agbox-bench-files-")
	if err != nil {
		return nil, err
	}
	m := &insideBench{boxes: [2]box{&agboxBox{d, name}, &bareBox{bare: b, id: name}}, dir: dir, rounds: rounds}
	rows, err := m.all(ctx)
	return rows, errors.Join(err, os.RemoveAll(dir), d.remove(ctx, name), b.remove(ctx, name))
}

type insideBench struct {
	boxes  [2]box
	dir    string
	rounds int
}

// alternate measures an operation of both sides in turns.
func (m *insideBench) alternate(r row, rounds int, op func(b box, side, round int) error) (row, error) {
	for i := range rounds {
		progress("%s: %d of %d", r.what, i+1, rounds)
		for j := range m.boxes {
			side := (i + j) % 2 // the remains of one side slow down the other
			start := time.Now()
			if err := op(m.boxes[side], side, i); err != nil {
				return r, fmt.Errorf("%s of %T: %w", r.what, m.boxes[side], err)
			}
			if took := time.Since(start); side == 0 {
				r.agbox = append(r.agbox, took)
			} else {
				r.bare = append(r.bare, took)
			}
		}
	}
	progressEnds()
	return r, nil
}

func (m *insideBench) all(ctx context.Context) (rows []row, err error) {
	for _, part := range []func(context.Context) ([]row, error){m.streams, m.files, m.trees, m.ports} {
		more, err := part(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func (m *insideBench) streams(ctx context.Context) ([]row, error) {
	stdin, err := m.alternate(row{what: "exec -i, 256 MiB of input", below: mostStdin}, 5, func(b box, _, _ int) error { return b.stdin(ctx, stdinBytes) })
	if err != nil {
		return nil, err
	}
	var terminals [2]net.Conn
	for i, b := range m.boxes {
		t, err := b.terminal(ctx)
		if err != nil {
			return nil, err
		}
		defer t.Close()
		if err := exchange(t, []byte("x")); err != nil { // the command runs
			return nil, err
		}
		terminals[i] = t
	}
	keys, err := m.alternate(row{what: "exec -it, keystroke to its echo", below: mostKeystroke}, 10*m.rounds, func(_ box, side, _ int) error {
		return exchange(terminals[side], []byte("x"))
	})
	return []row{stdin, keys}, err
}

// exchange sends data and reads as much.
func exchange(c net.Conn, data []byte) error {
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		sent <- err
	}()
	_, err := io.CopyN(io.Discard, c, int64(len(data)))
	return errors.Join(err, <-sent)
}

func (m *insideBench) files(ctx context.Context) (rows []row, err error) {
	for _, size := range []struct {
		name        string
		bytes       int
		read, write time.Duration
	}{{"1 KiB", smallBytes, mostSmallRead, 0}, {"8 MiB", largeBytes, 0, mostLargeWrite}} {
		data := bytes.Repeat([]byte("agbox!\n\x00"), size.bytes/8)
		path := "/tmp/file-" + strconv.Itoa(size.bytes)
		write, err := m.alternate(row{what: "write a file of " + size.name, below: size.write}, 3*m.rounds, func(b box, _, _ int) error { return b.write(ctx, path, data) })
		if err != nil {
			return nil, err
		}
		read, err := m.alternate(row{what: "read a file of " + size.name, below: size.read}, 3*m.rounds, func(b box, _, _ int) error {
			n, err := b.read(ctx, path)
			if err == nil && n != int64(size.bytes) {
				err = fmt.Errorf("read %d bytes", n)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, write, read)
	}
	return rows, nil
}

// trees copies with the programs of both sides. Nothing is removed meanwhile: ext4 is slow to create files for some seconds after many were removed.
func (m *insideBench) trees(ctx context.Context) ([]row, error) {
	src := filepath.Join(m.dir, "tree")
	for i := range treeFiles {
		dir := filepath.Join(src, strconv.Itoa(i/100))
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), fmt.Append(nil, "the content of file ", i), 0o600)); err != nil {
			return nil, err
		}
	}
	rounds := max(5, m.rounds/3)
	in, err := m.alternate(row{what: "cp of 10,000 files into it", most: mostTree}, rounds, func(b box, _, round int) error {
		return b.copyIn(ctx, src, fmt.Sprint("/tmp/tree-", round))
	})
	if err != nil {
		return nil, err
	}
	out, err := m.alternate(row{what: "cp of 10,000 files out of it", most: mostTree}, rounds, func(b box, side, round int) error {
		return b.copyOut(ctx, fmt.Sprint("/tmp/tree-", round), filepath.Join(m.dir, fmt.Sprint("out-", side, "-", round)))
	})
	return []row{in, out}, err
}

func (m *insideBench) ports(ctx context.Context) ([]row, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var conns [2]net.Conn
	for i, b := range m.boxes {
		if err := b.serve(ctx, program); err != nil {
			return nil, err
		}
		err := poll(ctx, 10*time.Millisecond, func(ctx context.Context) (bool, error) {
			c, err := b.dial(ctx)
			if err == nil {
				err = exchange(c, []byte("x"))
			}
			conns[i] = c
			return err == nil, nil
		})
		if err != nil {
			return nil, fmt.Errorf("the echo server of %T does not answer; build this program with CGO_ENABLED=0: %w", b, err)
		}
		defer conns[i].Close()
	}
	trip, err := m.alternate(row{what: "forwarded port, round trip"}, 10*m.rounds, func(_ box, side, _ int) error { return exchange(conns[side], []byte("x")) })
	if err != nil {
		return nil, err
	}
	data := make([]byte, tunnelBytes)
	through, err := m.alternate(row{what: "forwarded port, 64 MiB there and back"}, 5, func(_ box, side, _ int) error { return exchange(conns[side], data) })
	if err != nil {
		return nil, err
	}
	many, err := m.alternate(row{what: "forwarded port, 2,000 connections"}, 3, func(b box, _, _ int) error { return connections(ctx, b, tunnels) })
	return []row{trip, through, many}, err
}

// connections opens n connections, uses each and closes all.
func connections(ctx context.Context, b box, n int) error {
	var wg sync.WaitGroup
	conns, errs := make([]net.Conn, n), make([]error, n)
	for i := range n {
		wg.Go(func() {
			c, err := b.dial(ctx)
			if err == nil {
				conns[i], err = c, exchange(c, []byte("x"))
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for _, c := range conns {
		if c != nil {
			_ = c.Close()
		}
	}
	return errors.Join(errs...)
}

// echoServer serves echoPort on all addresses.
func echoServer() error {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(echoPort))
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c) // until the client is gone
		}()
	}
}

// blank reads n bytes.
func blank(n int64) io.Reader { return io.LimitReader(blanks{}, n) }

type blanks struct{}

func (blanks) Read(p []byte) (int, error) { return len(p), nil }

type agboxBox struct {
	*daemon
	id string
}

func (a *agboxBox) stdin(ctx context.Context, n int64) error {
	e, err := a.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: a.id, Command: []string{"sh", "-c", "exec cat >/dev/null"}, Stdin: &agboxv1.StdinSpec{}})
	if err != nil {
		return err
	}
	_, err = a.Attach(ctx, e.GetExecId(), client.AttachOptions{Stdin: blank(n), Stdout: io.Discard, Stderr: io.Discard})
	return err
}

func (a *agboxBox) terminal(ctx context.Context) (net.Conn, error) {
	e, err := a.CreateExec(ctx, &agboxv1.CreateExecRequest{
		SandboxId: a.id, Command: []string{"sh", "-c", rawEcho}, Stdin: &agboxv1.StdinSpec{}, Terminal: &agboxv1.TerminalSpec{Columns: 80, Rows: 24},
	})
	if err != nil {
		return nil, err
	}
	mine, theirs := net.Pipe()
	go func() {
		_, _ = a.Attach(ctx, e.GetExecId(), client.AttachOptions{Stdin: theirs, Stdout: theirs}) // a failure shows in the exchange
		_ = theirs.Close()
	}()
	return mine, nil
}

// rawEcho leaves the echo to the command: what comes back has been through it.
const rawEcho = "stty raw -echo; exec cat"

func (a *agboxBox) read(ctx context.Context, path string) (int64, error) {
	f, err := a.OpenFile(ctx, &agboxv1.ReadFileRequest{SandboxId: a.id, Path: path})
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // it was read only
	return io.Copy(io.Discard, f)
}

func (a *agboxBox) write(ctx context.Context, path string, data []byte) error {
	_, err := a.WriteFile(ctx, &agboxv1.WriteFileStart{SandboxId: a.id, Path: path}, bytes.NewReader(data))
	return err
}

func (a *agboxBox) cp(ctx context.Context, from, to string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(a.bin, "agbox"), "cp", from, to)
	cmd.Env = append(os.Environ(), "AGBOX_HOST="+a.home+"/run/agbox/agboxd.sock", "XDG_CONFIG_HOME="+a.home+"/config")
	return combined(cmd)
}

// combined runs a command whose error is what it prints.
func combined(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
	}
	return nil
}

func (a *agboxBox) copyIn(ctx context.Context, local, path string) error {
	return a.cp(ctx, local, a.id+":"+path)
}

func (a *agboxBox) copyOut(ctx context.Context, path, local string) error {
	return a.cp(ctx, a.id+":"+path, local)
}

func (a *agboxBox) serve(ctx context.Context, program string) error {
	f, err := os.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	mode := uint32(0o755)
	if _, err := a.WriteFile(ctx, &agboxv1.WriteFileStart{SandboxId: a.id, Path: "/tmp/echo", Mode: &mode}, f); err != nil {
		return err
	}
	_, err = a.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: a.id, Command: []string{"/tmp/echo", "-" + echoFlag}})
	return err
}

func (a *agboxBox) dial(ctx context.Context) (net.Conn, error) {
	return a.DialSandbox(ctx, a.id, "tcp", "localhost:"+strconv.Itoa(echoPort))
}

var echoTCP = nat.Port(strconv.Itoa(echoPort) + "/tcp")

// createPublished starts a container that publishes the port of the echo server.
func (b *bare) createPublished(ctx context.Context, id string) error {
	return b.start(ctx, id, nat.PortMap{echoTCP: {{HostIP: "127.0.0.1"}}})
}

type bareBox struct {
	*bare
	id      string
	address string // of the published port
}

// attached starts a command and returns its standard input and output.
func (b *bareBox) attached(ctx context.Context, o container.ExecOptions) (net.Conn, io.Reader, error) {
	o.AttachStdin, o.AttachStdout, o.AttachStderr = true, true, true
	e, err := b.c.ContainerExecCreate(ctx, b.id, o)
	if err != nil {
		return nil, nil, err
	}
	a, err := b.c.ContainerExecAttach(ctx, e.ID, container.ExecAttachOptions{Tty: o.Tty})
	return a.Conn, a.Reader, err
}

func (b *bareBox) stdin(ctx context.Context, n int64) error {
	conn, out, err := b.attached(ctx, container.ExecOptions{Cmd: []string{"sh", "-c", "exec cat >/dev/null"}})
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.Copy(conn, blank(n)); err != nil {
		return err
	}
	if err := conn.(client.HalfCloser).CloseWrite(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, out)
	return err
}

func (b *bareBox) terminal(ctx context.Context) (net.Conn, error) {
	conn, _, err := b.attached(ctx, container.ExecOptions{Cmd: []string{"sh", "-c", rawEcho}, Tty: true})
	return conn, err
}

func (b *bareBox) read(ctx context.Context, path string) (int64, error) {
	r, _, err := b.c.CopyFromContainer(ctx, b.id, path)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	tr := tar.NewReader(r)
	if _, err := tr.Next(); err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, tr)
}

func (b *bareBox) write(ctx context.Context, path string, data []byte) error {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.Base(path), Size: int64(len(data)), Mode: 0o644})
	if err == nil {
		_, err = tw.Write(data)
	}
	if err == nil {
		err = tw.Close()
	}
	if err != nil {
		return err
	}
	return b.c.CopyToContainer(ctx, b.id, filepath.Dir(path), &buf, container.CopyToContainerOptions{})
}

func (b *bareBox) copyIn(ctx context.Context, local, path string) error {
	return combined(exec.CommandContext(ctx, "docker", "cp", local, b.id+":"+path))
}

func (b *bareBox) copyOut(ctx context.Context, path, local string) error {
	return combined(exec.CommandContext(ctx, "docker", "cp", b.id+":"+path, local))
}

func (b *bareBox) serve(ctx context.Context, program string) error {
	if err := b.copyIn(ctx, program, "/tmp/echo"); err != nil {
		return err
	}
	e, err := b.c.ContainerExecCreate(ctx, b.id, container.ExecOptions{Cmd: []string{"/tmp/echo", "-" + echoFlag}})
	if err != nil {
		return err
	}
	if err := b.c.ContainerExecStart(ctx, e.ID, container.ExecStartOptions{Detach: true}); err != nil {
		return err
	}
	c, err := b.c.ContainerInspect(ctx, b.id)
	if err != nil {
		return err
	}
	for _, p := range c.NetworkSettings.Ports[echoTCP] {
		b.address = net.JoinHostPort(p.HostIP, p.HostPort)
	}
	return nil
}

func (b *bareBox) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", b.address)
}
