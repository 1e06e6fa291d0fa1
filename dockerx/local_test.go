package dockerx

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A rootless engine is foreign, also where it serves from this process's namespace.
func TestARootlessEngineIsForeign(t *testing.T) {
	for option, want := range map[string]string{
		"name=rootless": "is rootless: its networks are in a network namespace of its own", "name=userns": "", "name=seccomp,profile=default": "",
	} {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/info") {
				answer(w, http.StatusNotFound, map[string]string{"message": "no such network"})
				return
			}
			answer(w, http.StatusOK, map[string]any{"ID": "id", "SecurityOptions": []string{option}})
		})
		e, _ := newEngine(t, s.host)
		if why, err := e.Foreign(t.Context()); err != nil || why != want {
			t.Errorf("%s: %q, %v", option, why, err)
		}
	}
}

// An engine of another network namespace is foreign, and one that does not answer is unknown.
func TestForeign(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace")
	}
	for _, tt := range []struct {
		name  string
		flags uintptr
		want  string
	}{{"here", 0, ""}, {"elsewhere", syscall.CLONE_NEWNET, "runs in another network namespace"}} {
		path := filepath.Join(t.TempDir(), "sock")
		_, stop := startNamed(t, "engine", path, tt.flags)
		e, err := New(Options{Host: "unix://" + path})
		if err != nil {
			t.Fatal(err)
		}
		if why, err := e.Foreign(t.Context()); err != nil || why != tt.want {
			t.Errorf("%s: %q, %v", tt.name, why, err)
		}
		stop()
		if why, err := e.Foreign(t.Context()); err == nil || why != "" {
			t.Errorf("%s, and gone: %q, %v", tt.name, why, err)
		}
		_ = e.Close()
	}
	remote, err := New(Options{Host: "tcp://127.0.0.1:2375"})
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	if why, err := remote.Foreign(t.Context()); err != nil || why != "is reached over tcp" {
		t.Errorf("remote: %q, %v", why, err)
	}
}
