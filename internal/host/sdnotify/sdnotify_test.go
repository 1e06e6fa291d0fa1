package sdnotify

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// supervise creates a socket of that name and sets NOTIFY_SOCKET to it.
func supervise(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return conn
}

func TestNotify(t *testing.T) {
	for kind, name := range map[string]string{
		"path":     filepath.Join(t.TempDir(), "s"),
		"abstract": fmt.Sprintf("@agbox-sdnotify-test-%d", os.Getpid()),
	} {
		t.Run(kind, func(t *testing.T) {
			conn := supervise(t, name)
			want := Ready + "\nSTATUS=all is well"
			if err := Notify(want); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 1024)
			n, err := conn.Read(buf)
			if err != nil || string(buf[:n]) != want {
				t.Errorf("got %q, %v", buf[:n], err)
			}
		})
	}
}

func TestNotifyWithoutSupervisor(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify(Ready); err != nil {
		t.Error(err)
	}
}

func TestNotifyAbsentSocket(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "absent"))
	if err := Notify(Ready); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestNotifyDoesNotBlockOnASupervisorThatDoesNotRead(t *testing.T) {
	supervise(t, filepath.Join(t.TempDir(), "s")) // never reads
	begin := time.Now()
	for range 10_000 { // more than the socket's queue holds
		if err := Notify(Ready); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("took %s", took)
			}
			return
		}
	}
	t.Error("the queue never filled")
}
