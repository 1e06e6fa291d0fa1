package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/shimdir"
	"github.com/agbox/agbox/internal/server/httpapi"
)

// program builds agboxd once, without the race detector, because tests measure its memory.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agboxd-program-")
	if err != nil {
		return "", err
	}
	atExit = append(atExit, func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "agboxd")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, os.WriteFile(filepath.Join(dir, shimdir.Name), []byte("shim"), 0o755)
})

// served is the timeout of a call. Without a descriptor or memory for it, the daemon would never answer.
const served = 30 * time.Second

// abused is a daemon in a separate process, with an unavailable engine.
type abused struct {
	*testing.T
	pid          int
	http, socket string
}

// startAbused starts a daemon through a shell that first sets its limits.
func startAbused(t *testing.T, limits string) *abused {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	file := homed(t)
	a := &abused{T: t, socket: filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "agbox", "agboxd.sock")}
	writeConfig(t, file, "[http]\nlisten = \"127.0.0.1:0\"\n[docker]\nhost = \"unix:///nowhere/docker.sock\"\n")
	cmd := exec.Command("sh", "-c", limits+` exec "$0"`, path)
	said := &lines{more: make(chan struct{})}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("the daemon ended with %v: %s", err, said.text[max(0, len(said.text)-4000):])
		}
	})
	a.http = field(t, said.next(t, "http serves"), "listen")
	deadline := time.Now().Add(30 * time.Second)
	for a.ping(time.Second) != nil {
		if time.Now().After(deadline) {
			t.Fatal("the daemon does not serve")
		}
		time.Sleep(10 * time.Millisecond) // pause between two attempts; a starting daemon announces nothing to wait for
	}
	return a
}

// ping makes a call on a new connection.
func (a *abused) ping(patience time.Duration) error {
	conn := a.dial()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(a.Context(), patience)
	defer cancel()
	_, err := agboxv1.NewSandboxServiceClient(conn).Ping(ctx, &agboxv1.PingRequest{})
	return err
}

func (a *abused) dial(opts ...grpc.DialOption) *grpc.ClientConn {
	a.Helper()
	conn, err := grpc.NewClient("unix://"+a.socket, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		a.Fatal(err)
	}
	return conn
}

// fetch reads one page on a new connection.
func (a *abused) fetch(path string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: served}
	resp, err := client.Get("http://" + a.http + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func (a *abused) descriptors() int {
	a.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.pid))
	if err != nil {
		a.Fatal(err)
	}
	return len(open)
}

// TestIdleConnectionsLeaveDescriptorsForCalls opens far more connections than the daemon has descriptors, in every state that costs the
// client nothing.
func TestIdleConnectionsLeaveDescriptorsForCalls(t *testing.T) {
	const limit, many = 200, 1000
	a := startAbused(t, fmt.Sprintf("ulimit -Sn 64; ulimit -Hn %d;", limit))
	var mine []net.Conn
	defer func() {
		for _, c := range mine {
			c.Close()
		}
	}()
	open := func(network, addr, first string) {
		t.Helper()
		c, err := net.DialTimeout(network, addr, served)
		if err != nil {
			t.Fatalf("connection %d: %v", len(mine), err)
		}
		mine = append(mine, c)
		if _, err := c.Write([]byte(first)); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	}
	wantServed := func(when string) {
		t.Helper()
		if err := a.ping(served); err != nil {
			t.Errorf("%s: a call: %v", when, err)
		}
		if body, err := a.fetch("/healthz"); err != nil || body != "ok\n" {
			t.Errorf("%s: /healthz: %q, %v", when, body, err)
		}
		if n := a.descriptors(); n > limit*3/4 {
			t.Errorf("%s: %d of %d descriptors are open", when, n, limit)
		}
	}
	for name, first := range map[string]string{
		"nothing sent": "", "half a request": "GET /metrics HTTP/1.1\r\nHost: x\r\n", "answered and kept alive": "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		for range many {
			open("tcp", a.http, first)
		}
		wantServed(name)
	}
	if body, err := a.fetch("/readyz"); err != nil || !strings.Contains(body, "[!]descriptors: the limit of open files is 200") {
		t.Errorf("/readyz says %q, %v", body, err)
	}
	// Other users cannot reach the socket. A client that leaks connections to it must not use up the descriptors that execs need.
	kept := a.dial()
	defer kept.Close()
	client := agboxv1.NewSandboxServiceClient(kept)
	if _, err := client.Ping(t.Context(), &agboxv1.PingRequest{}); err != nil {
		t.Fatal(err)
	}
	for range limit {
		open("unix", a.socket, "")
	}
	if _, err := client.Ping(t.Context(), &agboxv1.PingRequest{}); err != nil {
		t.Errorf("on a connection that is there: %v", err)
	}
	if n := a.descriptors(); n > limit*3/4 {
		t.Errorf("with leaked calls %d of %d descriptors are open", n, limit)
	}
}

// TestHalfAHeaderClosesTheConnection: the client sends a byte now and then, so the connection is never idle.
func TestHalfAHeaderClosesTheConnection(t *testing.T) {
	a := startAbused(t, "")
	begun := time.Now() // before the daemon can accept: its timeout starts then, with the first byte or without it
	conn, err := net.Dial("tcp", a.http)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x"); err != nil {
		t.Fatal(err)
	}
	slowly := time.NewTicker(httpapi.HeaderTimeout / 20)
	defer slowly.Stop()
	closed := make(chan error, 1)
	go func() {
		_ = conn.SetReadDeadline(begun.Add(served))
		_, err := io.Copy(io.Discard, conn)
		closed <- err
	}()
	for {
		select {
		case <-slowly.C:
			_, _ = io.WriteString(conn, "x") // fails once the daemon has closed the connection
			continue
		case err := <-closed:
			took := time.Since(begun)
			if errors.Is(err, os.ErrDeadlineExceeded) || took < httpapi.HeaderTimeout || took >= httpapi.ReadTimeout {
				t.Errorf("the connection ended after %s: %v", took, err)
			}
		}
		break
	}
	if text, err := a.fetch("/healthz"); err != nil || text != "ok\n" {
		t.Errorf("another client got %q, %v", text, err)
	}
}
