//go:build docker

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// The limits of inotify count in each user namespace too, so a daemon in its own namespace reaches them while other processes do not.
const (
	noInstances = "echo 0 > /proc/sys/user/max_inotify_instances"
	noWatches   = "echo 0 > /proc/sys/user/max_inotify_watches"
)

// TestExecsAreQuickWithoutInotify measures execs of a daemon for which the kernel has no inotify instance, or no watch, left.
func TestExecsAreQuickWithoutInotify(t *testing.T) {
	for name, limits := range map[string]string{"no instances": noInstances, "no watches": noWatches, "as ever": ":"} {
		t.Run(name, func(t *testing.T) {
			d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
			d.within = limits
			d.http = freeAddress(t)
			d.start()
			id := d.create(nil)
			d.await(id, ready)
			var took []time.Duration
			for range 20 {
				begun := time.Now()
				x := d.exec(id, "true")
				if st := d.ended(x.GetExecId()); st.GetState() != finished {
					t.Fatalf("%v", st)
				}
				took = append(took, time.Since(begun))
			}
			slices.Sort(took)
			middle, slowest := took[len(took)/2], took[len(took)-1]
			t.Logf("execs took %s in the middle, %s at most", middle, slowest)
			if middle > time.Second || slowest > 2*time.Second {
				t.Errorf("execs took %s in the middle, %s at most", middle, slowest)
			}
			_, body, err := d.page("/readyz")
			if warned := err == nil && strings.Contains(body, "[!]inotify: the kernel gives no instance or watch for 1 sandboxes"); warned != (limits != ":") {
				t.Errorf("/readyz: %s, %v", body, err)
			}
			d.remove(id)
		})
	}
}

// TestANamedRuntimeIsProvenOnTheEngine: the engine's own runtime, named, runs commands before and after a resume.
func TestANamedRuntimeIsProvenOnTheEngine(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(&agboxv1.CreateSpec{Runtime: "runc"})
	d.await(id, ready)
	if got := d.sh(id, "echo before"); got != "before\n" {
		t.Errorf("it printed %q", got)
	}
	d.halt(id)
	d.resume(id)
	if got := d.sh(id, "echo after"); got != "after\n" {
		t.Errorf("it printed %q", got)
	}
	d.remove(id)
}
