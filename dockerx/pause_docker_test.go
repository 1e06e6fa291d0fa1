//go:build docker

package dockerx

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ticker starts a container that writes to a file all the time, and returns a function that waits for further writes.
func ticker(t *testing.T, e *Engine) (id string, ticks func()) {
	t.Helper()
	dir := t.TempDir()
	id, err := e.CreateContainer(t.Context(), ContainerSpec{
		Name: uniqueName(), Image: "busybox:1", Cmd: []string{"sh", "-c", "while :; do echo >> /m/ticks; sleep 0.01; done"},
		Mounts:     []Mount{{Source: dir, Target: "/m", Writable: true}},
		StopSignal: "SIGKILL", // a PID 1 without a handler ignores TERM
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before its directory is removed
		if err := e.RemoveContainer(context.Background(), id); err != nil {
			t.Error(err)
		}
	})
	if err := e.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		st, err := os.Stat(filepath.Join(dir, "ticks"))
		if err != nil {
			return 0
		}
		return st.Size()
	}
	return id, func() {
		t.Helper()
		for before, n := size(), 0; size() <= before+1; n++ { // a write in progress may complete even when frozen
			if n == 1000 {
				t.Fatal("the container does not run")
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// freezerOf returns the freezer files of a container, of either version of cgroups.
func freezerOf(t *testing.T, pid int, id string) freezerFiles {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		for _, f := range theHostFreezer.files(strings.TrimSpace(line), id) {
			if _, err := os.Stat(filepath.Join(f.dir, f.frozen)); err == nil {
				return f
			}
		}
	}
	t.Fatalf("no freezer for %s in %s", id, raw)
	return freezerFiles{}
}

// freezeByHand freezes a container without its engine, as an engine leaves it when killed during a pause.
func freezeByHand(t *testing.T, pid int, id string) freezerFiles {
	t.Helper()
	f := freezerOf(t, pid, id)
	if err := os.WriteFile(filepath.Join(f.dir, f.state), []byte(f.freezes), 0); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPauseAndUnpauseWhenEngineAndKernelDisagree(t *testing.T) {
	d, e := private(t, "--live-restore")
	id, ticks := ticker(t, e)
	pid := detail(t, e, id).Pid
	ticks()
	freezer := func(when string) freezerFiles {
		t.Helper()
		f := freezeByHand(t, pid, id)
		if c := detail(t, e, id); c.State != StateRunning || !f.isFrozen() {
			t.Fatalf("%s: %s, frozen %t", when, c.State, f.isFrozen())
		}
		return f
	}

	f := freezer("while the engine runs")
	if err := e.UnpauseContainer(t.Context(), id); err != nil || f.isFrozen() {
		t.Errorf("unpause: %v, frozen %t", err, f.isFrozen())
	}
	ticks()

	f = freezer("once more")
	if err := e.PauseContainer(t.Context(), id); err != nil || !f.isFrozen() || detail(t, e, id).State != StatePaused {
		t.Errorf("pause: %v, frozen %t", err, f.isFrozen())
	}
	if err := e.UnpauseContainer(t.Context(), id); err != nil || f.isFrozen() {
		t.Errorf("unpause: %v, frozen %t", err, f.isFrozen())
	}
	ticks()

	if err := e.PauseContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.dir, f.state), []byte(f.thaws), 0); err != nil { // as a death during an unpause does
		t.Fatal(err)
	}
	if err := e.UnpauseContainer(t.Context(), id); err != nil || f.isFrozen() {
		t.Errorf("unpause of a container that the kernel has thawed: %v, frozen %t", err, f.isFrozen())
	}
	// The engine answers a pause before it has handled the runtime's event of it, which then overwrites its answer to an unpause until the next event.
	eventually(t, "the engine knows that it runs", func() bool { return detail(t, e, id).State == StateRunning })
	ticks()

	d.Kill()
	f = freezeByHand(t, pid, id)
	d.Start()
	eventually(t, "the engine knows the container", func() bool {
		c, err := e.InspectContainer(t.Context(), id)
		return err == nil && c.Running
	})
	if c := detail(t, e, id); c.State != StateRunning || c.Pid != pid {
		t.Errorf("after a death during a pause: %s", c.State)
	}
	if err := e.UnpauseContainer(t.Context(), id); err != nil || f.isFrozen() {
		t.Errorf("unpause: %v, frozen %t", err, f.isFrozen())
	}
	ticks()
}

// eventually waits for a condition shortly after an engine's start: the first call may use a pooled connection to the
// previous engine.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 500 {
		if cond() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

func TestFrozenContainersAndTheDeathOfTheEngine(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want State
	}{
		"with live-restore":    {[]string{"--live-restore"}, StatePaused},
		"without live-restore": {nil, StateExited},
	} {
		t.Run(name, func(t *testing.T) {
			d, e := private(t, tc.args...)
			id, ticks := ticker(t, e)
			for end, kill := range map[string]func(){"kill": d.Kill, "stop": d.Stop} {
				ticks()
				if err := e.PauseContainer(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				kill()
				d.Start()
				eventually(t, "the engine knows the container", func() bool {
					_, err := e.InspectContainer(t.Context(), id)
					return err == nil
				})
				if c := detail(t, e, id); c.State != tc.want {
					t.Errorf("after a %s: %s", end, c.State)
				}
				if tc.want == StatePaused {
					if err := e.UnpauseContainer(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				} else if err := e.StartContainer(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			ticks()
		})
	}
}
