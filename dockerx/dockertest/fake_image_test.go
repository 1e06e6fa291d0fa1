package dockertest

import (
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

func TestPullsReportTheirSteps(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		f.PullDelay = 2200 * time.Millisecond
		f.PullSteps = []dockerx.PullProgress{{Current: 1, Total: 2, Layers: 1}, {Current: 2, Total: 2, Done: 1, Layers: 1}}
		f.AddRemoteImage("r:1", dockerx.Image{})
		var got []dockerx.PullProgress
		var at []time.Duration
		start := time.Now()
		o := dockerx.PullOptions{Progress: func(p dockerx.PullProgress) {
			got = append(got, p)
			at = append(at, time.Since(start))
		}}
		if _, err := f.EnsureImage(t.Context(), "r:1", o); err != nil {
			t.Fatal(err)
		}
		if want := append([]dockerx.PullProgress{{}}, f.PullSteps...); !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		// The waiter looks every 250 ms, and at the end.
		if want := []time.Duration{0, 1250 * time.Millisecond, f.PullDelay}; !slices.Equal(at, want) {
			t.Errorf("told at %v, want %v", at, want)
		}
		if _, err := f.EnsureImage(t.Context(), "r:1", o); err != nil || len(got) != 3 {
			t.Errorf("what is there: %v, told %v", err, got)
		}
	})
}

func TestPullsThatFailByReference(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		f.AddRemoteImage("r:1", dockerx.Image{})
		f.AddRemoteImage("r:2", dockerx.Image{})
		f.FailPulls("r:1", errdefs.ErrPermissionDenied)
		if _, err := f.EnsureImage(t.Context(), "r:1", dockerx.PullOptions{}); !errdefs.IsPermissionDenied(err) {
			t.Errorf("r:1: %v", err)
		}
		if _, err := f.EnsureImage(t.Context(), "r:2", dockerx.PullOptions{}); err != nil {
			t.Errorf("r:2: %v", err)
		}
		f.FailPulls("r:1", nil)
		if _, err := f.EnsureImage(t.Context(), "r:1", dockerx.PullOptions{}); err != nil {
			t.Errorf("r:1 when healed: %v", err)
		}
	})
}

func TestAlwaysPullsTheRegistrysNewImage(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		f.AddImage("r:1", dockerx.Image{User: "old"})
		f.AddRemoteImage("r:1", dockerx.Image{User: "new"})
		for _, tc := range []struct {
			always bool
			want   string
		}{{false, "old"}, {true, "new"}, {false, "new"}} {
			img, err := f.EnsureImage(t.Context(), "r:1", dockerx.PullOptions{Always: tc.always})
			if err != nil || img.User != tc.want {
				t.Errorf("always %t: %q, %v; want %q", tc.always, img.User, err, tc.want)
			}
		}
		f.FailPulls("r:1", errdefs.ErrUnavailable)
		if _, err := f.EnsureImage(t.Context(), "r:1", dockerx.PullOptions{Always: true}); !errdefs.IsUnavailable(err) {
			t.Errorf("a registry that is away: %v", err)
		}
	})
}
