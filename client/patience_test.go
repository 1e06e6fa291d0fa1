package client_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

func (d *daemon) patient(patience time.Duration, onAway func()) *client.Client {
	d.t.Helper()
	c, err := client.DialWith(d.socket, client.Options{Patience: patience, OnAway: onAway})
	d.must(err)
	d.t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestPatientCallsOutliveARestart(t *testing.T) {
	d, c := newDaemon(t)
	d.create(c, "abcd")
	told := make(chan struct{}, 2)
	patient := d.patient(time.Minute, func() { told <- struct{}{} })
	for name, call := range map[string]func() (any, error){
		"read":  func() (any, error) { return patient.GetSandbox(t.Context(), "abcd") },
		"write": func() (any, error) { return nil, patient.DeleteSandbox(t.Context(), "abcd") },
	} {
		d.stop()
		if _, err := c.GetSandbox(t.Context(), "abcd"); !client.IsUnavailable(err) {
			t.Errorf("%s: the other client got %v", name, err)
		}
		result := inBackground(call)
		<-told
		d.start()
		if _, err := result(); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// listening returns a daemon that the test itself plays at the listener.
func listening(t *testing.T) (*daemon, net.Listener) {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, socket: filepath.Join(dir, "s")}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", d.socket)
	d.must(err)
	return d, l
}

// A request whose connection broke may have counted; only a read may be sent again.
func TestPatientWritesAreSentOnce(t *testing.T) {
	d, l := listening(t)
	t.Cleanup(func() { _ = l.Close() })
	answered := newFlaky(t, l)
	c := d.patient(time.Minute, nil)

	if _, err := c.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{}); !client.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
	if got := answered.Load(); got != 1 {
		t.Errorf("a write was sent %d times", got)
	}
	answered.Store(0)
	ping, err := c.Ping(t.Context())
	if d.must(err); ping.GetVersion() != "flaky" || answered.Load() != 3 {
		t.Errorf("got %v after %d tries", ping, answered.Load())
	}
}

func TestPatienceEnds(t *testing.T) {
	d, _ := newDaemon(t)
	d.stop()
	var told atomic.Int32
	const patience = 3 * time.Second // well past the notice after a second, also on a busy host
	c := d.patient(patience, func() { told.Add(1) })
	begin := time.Now()
	_, err := c.Ping(t.Context())
	if took := time.Since(begin); !client.IsUnavailable(err) || took < patience || told.Load() != 1 {
		t.Errorf("got %v after %s, told %d times", err, took, told.Load())
	}

	// Where no daemon can come back, nothing is waited for.
	plain := filepath.Join(d.dir, "plain")
	d.must(os.WriteFile(plain, nil, 0o600))
	for _, path := range []string{filepath.Join(d.dir, "no", "dir"), plain} {
		c, err := client.DialWith(path, client.Options{Patience: time.Hour})
		d.must(err)
		if _, err := c.Ping(t.Context()); !client.IsUnavailable(err) {
			t.Errorf("%s: got %v", path, err)
		}
		_ = c.Close()
	}
}

// slowPing is a daemon that answers after the time in which an absent one is noticed.
type slowPing struct {
	agboxv1.UnimplementedSandboxServiceServer
}

func (slowPing) Ping(context.Context, *agboxv1.PingRequest) (*agboxv1.PingResponse, error) {
	time.Sleep(2 * time.Second)
	return &agboxv1.PingResponse{}, nil
}

func TestASlowAnswerIsNoAbsence(t *testing.T) {
	d, l := listening(t)
	server := grpc.NewServer()
	agboxv1.RegisterSandboxServiceServer(server, slowPing{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); wg.Wait() })
	var told atomic.Int32
	_, err := d.patient(time.Minute, func() { told.Add(1) }).Ping(t.Context())
	if d.must(err); told.Load() != 0 {
		t.Error("a daemon that was connected was called away")
	}
}
