package dockerx

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// pauser answers a pause or unpause with these statuses, one after the other, and an inspection with this state.
func pauser(state map[string]any, statuses ...int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			answerInspect(w, map[string]any{"Id": frozenID, "State": state})
			return
		}
		status := statuses[0]
		statuses = statuses[1:]
		if status == http.StatusNoContent {
			w.WriteHeader(status)
			return
		}
		answer(w, status, map[string]string{"message": "no"})
	}
}

// A frozen container of another runtime than runc is thawed before it is signalled.
func TestForeignContainersAreThawedBeforeTheirEnd(t *testing.T) {
	for _, tt := range []struct {
		runtime string
		paused  bool
		want    string
	}{
		{"runsc", true, "unpause end"},
		{"runsc", false, "end"},
		{"runc", true, "end"},
		{"", true, "end"},
	} {
		for name, end := range map[string]func(context.Context, *Engine) error{
			"stop":   func(ctx context.Context, e *Engine) error { return e.StopContainer(ctx, "x", time.Second) },
			"remove": func(ctx context.Context, e *Engine) error { return e.RemoveContainer(ctx, "x") },
		} {
			var calls []string
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodGet:
					answerInspect(w, map[string]any{
						"Id": frozenID, "State": map[string]any{"Running": true, "Paused": tt.paused, "Pid": 7}, "HostConfig": map[string]any{"Runtime": tt.runtime},
					})
					return
				case strings.HasSuffix(r.URL.Path, "/unpause"):
					calls = append(calls, "unpause")
				default:
					calls = append(calls, "end")
				}
				w.WriteHeader(http.StatusNoContent)
			})
			e, _ := newEngine(t, s.host)
			if err := end(t.Context(), e); err != nil || strings.Join(calls, " ") != tt.want {
				t.Errorf("%s of a container of %q, paused %t: %v, %v; want %s", name, tt.runtime, tt.paused, calls, err, tt.want)
			}
		}
	}
}

func TestPauseAndUnpauseClassifyRefusals(t *testing.T) {
	running, paused := map[string]any{"Running": true, "Pid": 7}, map[string]any{"Running": true, "Paused": true, "Pid": 7}
	ended := map[string]any{"Running": false}
	pause := func(ctx context.Context, e *Engine) error { return e.PauseContainer(ctx, "x") }
	unpause := func(ctx context.Context, e *Engine) error { return e.UnpauseContainer(ctx, "x") }
	for name, tc := range map[string]struct {
		do       func(context.Context, *Engine) error
		statuses []int
		state    map[string]any
		frozen   bool // by the kernel
		want     error
		thawed   bool
		refrozen bool // by Engine, so that the docker engine can thaw it
	}{
		"pause":                                  {do: pause, statuses: []int{204}, state: paused},
		"pause, frozen already":                  {do: pause, statuses: []int{409}, state: paused, frozen: true},
		"pause, not running":                     {do: pause, statuses: []int{409}, state: ended, want: errdefs.ErrFailedPrecondition},
		"pause, being restarted":                 {do: pause, statuses: []int{409}, state: running, want: errdefs.ErrFailedPrecondition},
		"pause, gone":                            {do: pause, statuses: []int{404}, want: errdefs.ErrNotFound},
		"pause, the kernel refuses":              {do: pause, statuses: []int{500}, state: running, want: errdefs.ErrInternal},
		"pause, an inspection without a state":   {do: pause, statuses: []int{500}, want: errdefs.ErrInternal},
		"pause, frozen without the engine":       {do: pause, statuses: []int{500, 204}, state: running, frozen: true, thawed: true},
		"pause, frozen without it and refused":   {do: pause, statuses: []int{500, 500}, state: running, frozen: true, want: errdefs.ErrInternal, thawed: true},
		"unpause":                                {do: unpause, statuses: []int{204}, state: running},
		"unpause, not frozen":                    {do: unpause, statuses: []int{500}, state: running},
		"unpause, not frozen, another class":     {do: unpause, statuses: []int{409}, state: running},
		"unpause, not running":                   {do: unpause, statuses: []int{500}, state: ended, want: errdefs.ErrFailedPrecondition},
		"unpause, gone":                          {do: unpause, statuses: []int{404}, want: errdefs.ErrNotFound},
		"unpause, still frozen":                  {do: unpause, statuses: []int{500}, state: paused, frozen: true, want: errdefs.ErrInternal},
		"unpause, thawed without the engine":     {do: unpause, statuses: []int{500, 204}, state: paused, refrozen: true},
		"unpause, thawed without it and refused": {do: unpause, statuses: []int{500, 500}, state: paused, want: errdefs.ErrInternal},
		"unpause, frozen without the engine":     {do: unpause, statuses: []int{500}, state: running, frozen: true, thawed: true},
	} {
		t.Run(name, func(t *testing.T) {
			e, seen := newEngine(t, newServer(t, pauser(tc.state, tc.statuses...)).host)
			content := "0\n"
			if tc.frozen {
				content = "1\n"
			}
			e.freezer = madeUpHost(t, "0::/docker/ID\n", map[string]string{"docker/ID/cgroup.freeze": content})
			err := tc.do(t.Context(), e)
			if tc.want == nil && err != nil {
				t.Error(err)
			} else if tc.want != nil {
				wantClass(t, err, tc.want)
			}
			got, err := os.ReadFile(filepath.Join(e.freezer.cgroup, "docker", frozenID, "cgroup.freeze"))
			says := strings.TrimSpace(string(got))
			if thawed, frozen := tc.frozen && says == "0", !tc.frozen && says == "1"; err != nil || thawed != tc.thawed || frozen != tc.refrozen {
				t.Errorf("cgroup.freeze contains %q, %v", got, err)
			}
			if ops, _ := seen.take(); len(ops) != 1 {
				t.Errorf("observed %v", ops)
			}
		})
	}
}
