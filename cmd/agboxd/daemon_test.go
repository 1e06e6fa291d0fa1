package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/host/shimdir"
	"github.com/agbox/agbox/internal/recovery/recoverytest"
	"github.com/agbox/agbox/internal/server/httpapi"
)

// site is where a daemon of these tests runs.
type site struct {
	*recoverytest.Site
	paths config.Paths
}

func newSite(t testing.TB) *site {
	t.Helper()
	s := recoverytest.New(t)
	return &site{Site: s, paths: config.Paths{DataDir: s.DataDir, Database: s.Database}}
}

// assembled returns a daemon with an unavailable engine and no patience, and a connection to it. None of its loops runs yet.
func (s *site) assembled(change ...func(*config.Config)) (*daemon, *grpc.ClientConn) {
	s.Helper()
	run, err := os.MkdirTemp("", "agboxd") // a socket's path is short
	s.Must(err)
	s.Cleanup(func() { os.RemoveAll(run) })
	s.paths.Socket, s.paths.RunDir, s.paths.ConfigFile = filepath.Join(run, "s"), run, filepath.Join(run, "config", "config.toml")
	cfg, _, err := config.Load("", s.paths)
	s.Must(err)
	cfg.Docker.Host, cfg.HTTP.Listen, cfg.Artifacts.ExecOutputRoot = "unix://"+run+"/nowhere", config.HTTPOff, s.LogRoot
	for _, fn := range change {
		fn(&cfg)
	}
	shim := filepath.Join(run, shimdir.Name)
	s.Must(os.WriteFile(shim, []byte("shim"), 0o755))
	d, err := assemble(s.Context(), cfg, s.paths, options{shim: shim}, s.Logger)
	s.Must(err)
	d.patience = 0
	conn, err := grpc.NewClient("unix://"+s.paths.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.Must(err)
	return d, conn
}

// serving runs the assembled daemon.
func (s *site) serving(change ...func(*config.Config)) (*daemon, agboxv1.SandboxServiceClient) {
	s.Helper()
	d, conn := s.assembled(change...)
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx, nil) }()
	s.Cleanup(func() { cancel(); s.Must(errors.Join(conn.Close(), <-ended)) })
	return d, agboxv1.NewSandboxServiceClient(agboxv1.Declare(conn))
}

// TestUnknownObjectsAreUnavailableDuringARebuild: known objects are served meanwhile.
func TestUnknownObjectsAreUnavailableDuringARebuild(t *testing.T) {
	s := newSite(t)
	s.Live()
	s.CutLog()
	s.Must(os.Remove(s.Database))
	d, c := s.serving()
	ctx := t.Context()
	calls := map[string]func() error{
		"a create": func() error {
			_, err := c.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "x"}})
			return err
		},
		"an exec": func() error {
			_, err := c.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: "ready", Command: []string{"true"}})
			return err
		},
		"one not found":     func() error { _, err := c.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: "nope"}); return err },
		"an exec not found": func() error { _, err := c.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: "nope"}); return err },
		"one found": func() error {
			_, err := c.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: "frozen"})
			return err
		},
	}
	want := func(when string, wants map[string]codes.Code) {
		t.Helper()
		for name, code := range wants {
			if err := calls[name](); status.Code(err) != code {
				t.Errorf("%s: %s: %v, want %s", when, name, err, code)
			}
		}
	}
	want("before", map[string]codes.Code{
		"a create": codes.Unavailable, "an exec": codes.Unavailable, "one not found": codes.Unavailable, "an exec not found": codes.Unavailable,
		"one found": codes.Unavailable, // only the engine has its state
	})
	hidden, err := d.store.Unproven(ctx)
	s.Must(err)
	_, err = d.store.RecordRebuilt(ctx, hidden)
	s.Must(err)
	want("when some are recorded", map[string]codes.Code{"a create": codes.Unavailable, "one not found": codes.Unavailable, "one found": codes.OK})
	if body := readyz(d); !strings.Contains(body, "[-]records: the database was lost") {
		t.Errorf("readyz says %q", body)
	}
	if err := d.store.RebuildDone(ctx); err != nil {
		t.Fatal(err)
	}
	want("after", map[string]codes.Code{
		"a create": codes.OK, "an exec": codes.OK, "one not found": codes.NotFound, "an exec not found": codes.NotFound, "one found": codes.OK,
	})
	if body := readyz(d); !strings.Contains(body, "[+]records ok") || !strings.Contains(body, "limits") {
		t.Errorf("readyz says %q", body)
	}
}

func readyz(d *daemon) string {
	w := httptest.NewRecorder()
	httpapi.Handler(d.registry, d.checks).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	return w.Body.String()
}

// TestTheDoctorSaysAllOfReadyz on an engine that does not answer.
func TestTheDoctorSaysAllOfReadyz(t *testing.T) {
	s := newSite(t)
	d, _ := s.serving()
	conn, err := grpc.NewClient("unix://"+s.paths.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.Must(err)
	defer conn.Close()
	resp, err := agboxv1.NewAdminServiceClient(conn).Doctor(t.Context(), &agboxv1.DoctorRequest{})
	s.Must(err)
	got := map[string]*agboxv1.DoctorCheck{}
	for _, c := range resp.GetChecks() {
		if got[c.GetName()] != nil {
			t.Errorf("twice: %v", c)
		}
		got[c.GetName()] = c
	}
	for _, c := range d.checks() {
		if got[c.Name] == nil || (got[c.Name].GetStatus() == "problem") != (c.Problem != "") {
			t.Errorf("%+v is %v", c, got[c.Name])
		}
	}
	if c := got["engine"]; c.GetStatus() != "problem" || c.GetText() == "" {
		t.Errorf("the engine does not answer: %v", c)
	}
	if got["daemon"] == nil || got["security.profile"].GetStatus() != "warning" || got["cpu_limit"] != nil {
		t.Errorf("%v", resp)
	}
}

func TestADryRunNeedsAnEngineAndChangesNothing(t *testing.T) {
	file := homed(t)
	if err := os.WriteFile(file, []byte("[docker]\nhost = \"unix:///nowhere/docker.sock\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := outcome("rehydrate"); code != exitUsage || !strings.Contains(errs, "--dry-run") {
		t.Errorf("%d, %q", code, errs)
	}
	if code, out, errs := outcome("rehydrate", "--dry-run"); code != exitRuntime || out != "" || strings.Count(errs, "\n") != 1 {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	if _, err := os.Stat(filepath.Join(os.Getenv("XDG_DATA_HOME"), "agents-sandbox")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it made a data directory: %v", err)
	}
}

// TestTheDaemonServesAfterItsPatience: it serves after its patience, or earlier if no rebuild is pending.
func TestTheDaemonServesAfterItsPatience(t *testing.T) {
	s := newSite(t)
	for name, tc := range map[string]struct {
		done, stopped bool
		want          time.Duration
	}{
		"the engine is away":   {want: rebuildPatience},
		"there is no rebuild":  {done: true},
		"the daemon is to end": {stopped: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &daemon{log: s.Logger, patience: rebuildPatience}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			if tc.done {
				close(done)
			}
			if tc.stopped {
				cancel()
			}
			begun := time.Now()
			if d.awaitRebuild(ctx, done); time.Since(begun) != tc.want {
				t.Errorf("%s: it waits %s", name, time.Since(begun))
			}
		})
	}
}

// The directory of the configuration is there after a start: one that a sandbox makes in its home directory would configure the next start.
func TestAStartMakesTheDirectoryOfTheConfiguration(t *testing.T) {
	s := newSite(t)
	s.serving()
	info, err := os.Stat(filepath.Dir(s.paths.ConfigFile))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}
