package dockerx

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"
)

// observations records the calls of Options.Observe.
type observations struct {
	mu   sync.Mutex
	ops  []string
	errs []error
}

func (o *observations) observe(op string, _ time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ops, o.errs = append(o.ops, op), append(o.errs, err)
}

func (o *observations) take() ([]string, []error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ops, errs := o.ops, o.errs
	o.ops, o.errs = nil, nil
	return ops, errs
}

// everyMethod calls each method, by the name of its first operation.
var everyMethod = map[string]func(context.Context, *Engine) error{
	OpInfo:             func(ctx context.Context, e *Engine) error { _, err := e.Info(ctx); return err },
	OpListContainers:   func(ctx context.Context, e *Engine) error { _, err := e.ListContainers(ctx, nil); return err },
	OpInspectContainer: func(ctx context.Context, e *Engine) error { _, err := e.InspectContainer(ctx, "x"); return err },
	OpMeasureContainer: func(ctx context.Context, e *Engine) error { _, err := e.MeasureContainer(ctx, "x"); return err },
	OpCreateContainer: func(ctx context.Context, e *Engine) error {
		_, err := e.CreateContainer(ctx, ContainerSpec{Name: "x", Image: "x"})
		return err
	},
	OpStartContainer:   func(ctx context.Context, e *Engine) error { return e.StartContainer(ctx, "x") },
	OpStopContainer:    func(ctx context.Context, e *Engine) error { return e.StopContainer(ctx, "x", 0) },
	OpPauseContainer:   func(ctx context.Context, e *Engine) error { return e.PauseContainer(ctx, "x") },
	OpUnpauseContainer: func(ctx context.Context, e *Engine) error { return e.UnpauseContainer(ctx, "x") },
	OpRemoveContainer:  func(ctx context.Context, e *Engine) error { return e.RemoveContainer(ctx, "x") },
	OpUpdateContainer:  func(ctx context.Context, e *Engine) error { return e.UpdateContainer(ctx, "x", Limits{}) },
	OpStatPath:         func(ctx context.Context, e *Engine) error { _, err := e.StatPath(ctx, "x", "/"); return err },
	OpReadFile: func(ctx context.Context, e *Engine) error {
		_, err := e.ReadContainerFile(ctx, "x", "/f", 1)
		return err
	},
	OpReadLogs: func(ctx context.Context, e *Engine) error { _, err := e.ReadLogs(ctx, "x", 0); return err },
	OpWriteTar: func(ctx context.Context, e *Engine) error {
		return e.WriteTar(ctx, "x", "/", time.Minute, strings.NewReader("tar"))
	},
	OpReadTar: func(ctx context.Context, e *Engine) error {
		return e.ReadTar(ctx, "x", "f", func(io.Reader) error { return nil })
	},
	OpListNetworks: func(ctx context.Context, e *Engine) error { _, err := e.ListNetworks(ctx, nil); return err },
	OpCreateNetwork: func(ctx context.Context, e *Engine) error {
		e.subnets.Reset(nil) // no subnets to list first
		_, err := e.CreateNetwork(ctx, NetworkSpec{Name: "x"})
		return err
	},
	OpInspectNetwork: func(ctx context.Context, e *Engine) error { _, err := e.InspectNetwork(ctx, "x"); return err },
	OpConnectNetwork: func(ctx context.Context, e *Engine) error { return e.ConnectNetwork(ctx, "x", "y", nil) },
	OpRemoveNetwork:  func(ctx context.Context, e *Engine) error { return e.RemoveNetwork(ctx, "x") },
	OpInspectImage:   func(ctx context.Context, e *Engine) error { _, err := e.InspectImage(ctx, "x"); return err },
	OpPullImage: func(ctx context.Context, e *Engine) error {
		name, err := pullName("x")
		if err == nil {
			_, err = e.pull(ctx, name, func(PullProgress) {})
		}
		return err
	},
	OpInspectVolume:   func(ctx context.Context, e *Engine) error { _, err := e.VolumeExists(ctx, "x"); return err },
	OpCreateVolume:    func(ctx context.Context, e *Engine) error { return e.CreateVolume(ctx, "x", nil) },
	OpListVolumes:     func(ctx context.Context, e *Engine) error { _, err := e.ListVolumes(ctx, nil); return err },
	OpCommitContainer: func(ctx context.Context, e *Engine) error { _, err := e.CommitContainer(ctx, "x", nil); return err },
	OpBuildImage: func(ctx context.Context, e *Engine) error {
		_, err := e.BuildImage(ctx, BuildSpec{Context: strings.NewReader(""), Log: func(string) {}})
		return err
	},
	OpRewriteImage: func(ctx context.Context, e *Engine) error {
		_, err := e.RewriteImage(ctx, "x", "y", "z:1", nil)
		return err
	},
	OpListImages:   func(ctx context.Context, e *Engine) error { _, err := e.ListImages(ctx, nil); return err },
	OpRemoveImage:  func(ctx context.Context, e *Engine) error { return e.RemoveImage(ctx, "x") },
	OpRemoveVolume: func(ctx context.Context, e *Engine) error { return e.RemoveVolume(ctx, "x") },
	OpListVolumeUsers: func(ctx context.Context, e *Engine) error {
		_, err := e.ListVolumeUsers(ctx, "x")
		return err
	},
	OpEvents: func(ctx context.Context, e *Engine) error {
		return e.Events(ctx, time.Time{}, nil, func() {}, func(Event) {})
	},
}

func TestEveryOperationHasANameAndADeadline(t *testing.T) {
	for _, op := range Ops() {
		if everyMethod[op] == nil || Deadline(op) <= 0 {
			t.Errorf("%s: deadline %s, method known: %t", op, Deadline(op), everyMethod[op] != nil)
		}
	}
	if len(Ops()) != len(everyMethod) || Deadline("no such") != 0 {
		t.Error("operations that are not listed")
	}
}

// eachMethod calls every method and checks that it was observed once, with the error that it returned.
func eachMethod(ctx context.Context, t *testing.T, host string, check func(t *testing.T, err error)) {
	t.Helper()
	for op, call := range everyMethod {
		t.Run(op, func(t *testing.T) {
			e, seen := newEngine(t, host)
			err := call(ctx, e)
			check(t, err)
			if ops, errs := seen.take(); !slices.Equal(ops, []string{op}) || !errors.Is(err, errs[0]) {
				t.Errorf("observed %v with %v, want %s with %v", ops, errs, op, err)
			}
		})
	}
}

func wantClass(t *testing.T, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("got %v, want one of class %v", err, class)
	}
}

// wantAway checks the error for an unreachable engine: ErrUnavailable, with a readable text without the request URL.
func wantAway(t *testing.T, err error) {
	t.Helper()
	wantClass(t, err, errdefs.ErrUnavailable)
	if err != nil && strings.Contains(err.Error(), "http://") {
		t.Errorf("the error contains the request URL: %v", err)
	}
}

func TestEngineThatIsDown(t *testing.T) {
	eachMethod(t.Context(), t, "unix://"+filepath.Join(t.TempDir(), "none"), wantAway)
}

func TestEngineThatHangsUp(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	eachMethod(t.Context(), t, s.host, wantAway)
}

func TestEngineThatHangsUpDuringAnAnswer(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`[{"Id":"a`))
	})
	e, _ := newEngine(t, s.host)
	_, err := e.ListContainers(t.Context(), nil)
	wantClass(t, err, errdefs.ErrUnavailable)
}

// hanging returns a server that accepts connections and answers only /_ping until the test is over.
func hanging(t *testing.T) *fakeServer {
	over := make(chan struct{})
	s := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(over) })
	return s
}

func TestCancelledCallReturnsTheContextsError(t *testing.T) {
	s := hanging(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	eachMethod(ctx, t, s.host, func(t *testing.T, err error) {
		wantClass(t, err, context.DeadlineExceeded)
		if errdefs.IsUnavailable(err) {
			t.Errorf("%v has a class of the engine", err)
		}
	})
}

func TestEngineThatHangs(t *testing.T) {
	e, seen := newEngine(t, hanging(t).host)
	err := e.doWithin(t.Context(), OpInfo, 50*time.Millisecond, func(ctx context.Context, c *client.Client) error {
		_, err := c.Info(ctx)
		return err
	})
	wantClass(t, err, errdefs.ErrUnavailable)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is a context error of the caller", err)
	}
	if ops, _ := seen.take(); !slices.Equal(ops, []string{OpInfo}) {
		t.Errorf("observed %v", ops)
	}
}

func TestEngineThatStartsLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	e, _ := newEngine(t, "unix://"+path)
	_, err := e.ListContainers(t.Context(), nil)
	wantClass(t, err, errdefs.ErrUnavailable)
	newServerAt(t, path, emptyList)
	if _, err := e.ListContainers(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func emptyList(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, []any{}) }

// Replacing the engine by another version under a running daemon fails at most one call.
func TestEngineThatChangesItsVersion(t *testing.T) {
	for _, tc := range []struct{ name, oldest, newest, used string }{
		{"to a newer one that no longer supports the old version", "1.44", "1.50", "/v1.50/"},
		{"to one newer than the SDK", "1.44", "1.99", "/v1.51/"},
		{"to an older one", "1.12", "1.41", "/v1.41/"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t, emptyList)
			s.become("1.12", "1.43")
			e, _ := newEngine(t, s.host)
			if _, err := e.ListContainers(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			s.become(tc.oldest, tc.newest)
			_, err := e.ListContainers(t.Context(), nil)
			wantClass(t, err, errdefs.ErrUnavailable)
			if _, err := e.ListContainers(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if last := s.lastPath(); !strings.HasPrefix(last, tc.used) {
				t.Errorf("asked for %s, want %s", last, tc.used)
			}
		})
	}
}

func TestEngineIsTooOld(t *testing.T) {
	s := newServer(t, emptyList)
	s.become("1.12", "1.40")
	e, _ := newEngine(t, s.host)
	_, err := e.ListContainers(t.Context(), nil)
	wantClass(t, err, errdefs.ErrFailedPrecondition)
}

func TestServerIsNotAnEngine(t *testing.T) {
	s := newServer(t, emptyList)
	s.become("", "")
	e, _ := newEngine(t, s.host)
	_, err := e.ListContainers(t.Context(), nil)
	wantClass(t, err, errdefs.ErrUnavailable)
}

// A verdict on a container needs a whole answer.
func TestAnIncompleteInspectionIsUnavailable(t *testing.T) {
	for _, part := range []string{"State", "HostConfig", "Config", "NetworkSettings"} {
		e, _ := newEngine(t, newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			answerInspect(w, map[string]any{"Id": "x", part: nil})
		}).host)
		_, err := e.InspectContainer(t.Context(), "x")
		wantClass(t, err, errdefs.ErrUnavailable)
	}
}

// A container that is being removed, or whose removal has failed, has no readable log any more.
func TestTheLogOfADeadContainerIsNotFound(t *testing.T) {
	e, _ := newEngine(t, newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"message":"can not get logs from container which is dead or marked for removal"}`))
	}).host)
	_, err := e.ReadLogs(t.Context(), "x", 0)
	wantClass(t, err, errdefs.ErrNotFound)
}

func TestConnectionsAreReused(t *testing.T) {
	s := newServer(t, emptyList)
	e, _ := newEngine(t, s.host)
	const callers = 16
	for range 20 { // in rounds: the transport may dial for a call that then gets a connection returned by another call
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				if _, err := e.ListContainers(t.Context(), nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	// A connection may not be back in the pool when the next round starts, so there can be one more per caller.
	if n := s.conns.Load(); n == 0 || n > 2*callers {
		t.Errorf("16 callers made %d connections for 320 calls", n)
	}
}

func TestInvalidOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"a host that is no URL":      {Host: "nonsense"},
		"a host over ssh":            {Host: "ssh://somewhere"},
		"a pool that is too small":   {SubnetPool: netip.MustParsePrefix("10.0.0.0/30")},
		"a pool of another family":   {SubnetPool: netip.MustParsePrefix("fd00::/48")},
		"a socket path that is long": {Host: "unix:///" + strings.Repeat("x", 200)},
	} {
		_, err := New(o)
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
