package recovery_test

import (
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/internal/recovery/recoverytest"
	"github.com/agbox/agbox/store"
)

// newVillage returns a site without its database, and an engine that has the last state of each sandbox. Stopped containers exited with the
// given code.
func newVillage(t testing.TB, code int, ids ...string) (*site, *dockertest.Fake) {
	t.Helper()
	s := newSite(t)
	engine := dockertest.NewFake()
	t.Cleanup(func() { s.Must(engine.Close()) })
	engine.AddImage("x", dockerx.Image{})
	records := s.Start()
	files := s.Execs()
	spec := &agboxv1.CreateSpec{Image: "x", Command: []string{"serve"}, RestartPolicy: "always"}
	for _, id := range ids {
		_, err := records.CreateSandbox(s.Context(), id, "name-of-"+id, spec, nil)
		s.Must(err)
		s.Must(recoverytest.Lives[id](records, id))
		s.container(engine, files, records.InstanceID(), id, spec, code)
	}
	s.Die(records)
	s.Must(os.Remove(s.Database))
	return s, engine
}

// container creates the primary of a sandbox; if the sandbox is stopped, the container has exited.
func (s *site) container(engine *dockertest.Fake, files *execjournal.Dir, instance, id string, spec *agboxv1.CreateSpec, code int) {
	s.Helper()
	paths, err := files.Prepare(id)
	s.Must(err)
	s.Must(files.Release(id))
	label, err := plan.SpecLabel(spec)
	s.Must(err)
	primary, err := engine.CreateContainer(s.Context(), dockerx.ContainerSpec{
		Name: naming.Primary(id), Image: "x", Entrypoint: []string{execjournal.ContainerShim, "init", "--gated", "--", "serve"},
		Labels: map[string]string{
			naming.SandboxID: id, naming.Instance: instance, naming.Component: naming.ComponentPrimary, naming.SpecHash: plan.SpecHash(spec),
			naming.Spec: label,
		},
		Mounts: []dockerx.Mount{{Source: paths.Ctl, Target: execjournal.ContainerCtl}},
	})
	s.Must(err)
	s.Must(engine.StartContainer(s.Context(), primary))
	if id != "running" {
		engine.ExitContainer(primary, code, false)
	}
}

// damages holds functions that damage a file as a fault may do.
var damages = map[string]func(r *rand.Rand, b []byte) []byte{
	"cut":   func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] },
	"a bit": func(r *rand.Rand, b []byte) []byte { b[r.IntN(len(b))] ^= 1 << r.IntN(8); return b },
	"many bytes": func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b))
		fillRandom(r, b[at:min(at+64, len(b))])
		return b
	},
	"a hole":           func(r *rand.Rand, b []byte) []byte { clear(b[r.IntN(len(b)):]); return b },
	"a torn page":      func(_ *rand.Rand, b []byte) []byte { clear(b[len(b)/512*512:]); return b },
	"longer":           func(r *rand.Rand, b []byte) []byte { return append(b, make([]byte, r.IntN(4096))...) },
	"twice":            func(r *rand.Rand, b []byte) []byte { return append(b, b[:r.IntN(len(b))]...) },
	"empty":            func(*rand.Rand, []byte) []byte { return nil },
	"half of it twice": func(_ *rand.Rand, b []byte) []byte { return append(b, b[:len(b)/2]...) },
}

func fillRandom(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// wantNoneUp fails if a stopped sandbox would be started, or a running one stopped.
func wantNoneUp(t testing.TB, what, id string, state agboxv1.SandboxState, want storev1.RunState) {
	t.Helper()
	up := want == storev1.RunState_RUN_STATE_RUN && state != agboxv1.SandboxState_SANDBOX_STATE_FAILED
	if up != (id == "running") {
		t.Errorf("%s: %s is %s, and is to be %s", what, id, state, want)
	}
}

// TestADamagedLogNeverStartsAStoppedSandbox: the log is cut at each length, and each of its bytes is changed once.
func TestADamagedLogNeverStartsAStoppedSandbox(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for _, id := range []string{"stopped-again", "running"} {
		s, engine := newVillage(t, 3, id)
		g := recovery.Gatherer{Engine: engine, Files: s.Execs(), Log: quiet}
		path := s.logFiles("segment-*")[0]
		whole, err := os.ReadFile(path)
		s.Must(err)
		look := func(what string, b []byte) {
			s.Must(os.WriteFile(path, b, 0o600))
			found, list, err := store.Preview(store.Options{Path: s.Database, Logger: quiet}, filepath.Join(s.DataDir, "preview"))
			s.Must(err)
			if found.Missing == "" {
				t.Fatalf("%s: nothing is missing, it says", what)
			}
			var known []recovery.Known
			for _, r := range list {
				known = append(known, recovery.Known{Record: r.Record, Execs: r.Execs, Torn: true})
			}
			in, err := g.Gather(t.Context(), known)
			s.Must(err)
			out := recovery.Plan(in, time.Now())
			if len(out.Sandboxes) != 1 {
				t.Fatalf("%s: %s is lost", what, id)
			}
			r := out.Sandboxes[0].Record
			wantNoneUp(t, what, id, agboxv1.SandboxState(r.GetState()), r.GetDesired().GetRunState())
		}
		step := 1
		if testing.Short() {
			step = 7
		}
		for n := 0; n < len(whole); n += step {
			look("cut", whole[:n])
			bad := slices.Clone(whole)
			bad[n] ^= 1 << (n % 8)
			look("a bit", bad)
			if t.Failed() {
				t.Fatalf("at %d of %d", n, len(whole))
			}
		}
	}
}

// logFiles returns the files of the log of the given kind.
func (s *site) logFiles(pattern string) []string {
	s.Helper()
	paths, err := filepath.Glob(filepath.Join(store.LogDir(s.Database), pattern))
	s.Must(err)
	if len(paths) == 0 {
		s.Fatalf("there is no %s", pattern)
	}
	return paths
}

func TestARebuildFromADamagedLogBringsNothingUp(t *testing.T) {
	for what, damage := range damages {
		for seed, code := range []int{0, 143, 3, 137} {
			r := rand.New(rand.NewPCG(uint64(seed), 4))
			s, engine := newVillage(t, code, slices.Collect(maps.Keys(recoverytest.Lives))...)
			pattern := "segment-*"
			if seed == 1 {
				pattern = "*"
			}
			for _, path := range s.logFiles(pattern) {
				b, err := os.ReadFile(path)
				s.Must(err)
				s.Must(os.WriteFile(path, damage(r, b), 0o600))
			}
			records := s.Start()
			again := s.Rebuilder(records)
			gather := again.Gather
			again.Gather = func() recovery.Gatherer { g := gather(); g.Engine = engine; return g }
			s.Must(again.FromLog(t.Context()))
			again.Finish(t.Context())
			for id := range recoverytest.Lives {
				sb, err := records.Sandbox(t.Context(), id)
				if err != nil {
					t.Errorf("%s: %s: %v", what, id, err)
					continue
				}
				wantNoneUp(t, what, id, sb.State, sb.Desired.GetRunState())
			}
			if n := len(engine.Containers()); n != len(recoverytest.Lives) {
				t.Errorf("%s: %d containers are left", what, n)
			}
			s.Must(records.Close())
		}
	}
}
