package dockertest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox/agbox/dockerx"
)

func TestFrozenContainerSurvivesTheEngineOnlyWithLiveRestore(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		id := startOne(t, f)
		if err := f.PauseContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		f.RestartEngine(true)
		if d := state(t, f, id); d.State != dockerx.StatePaused || !d.Paused || !d.Running {
			t.Errorf("with live-restore: %+v", d)
		}
		f.RestartEngine(false)
		if d := state(t, f, id); d.State != dockerx.StateExited || d.Paused || d.Running || d.ExitCode != 137 {
			t.Errorf("without: %+v", d)
		}
	})
}

func TestOnPauseIsCalledForEachFreezeAndThaw(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		var told []bool
		f.OnPause(func(d dockerx.ContainerDetail) { told = append(told, d.Paused) })
		id := startOne(t, f)
		want := func(when string, want ...bool) {
			t.Helper()
			if !slices.Equal(told, want) {
				t.Errorf("%s: %v, want %v", when, told, want)
			}
			told = nil
		}
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		do(f.PauseContainer(t.Context(), id))
		do(f.PauseContainer(t.Context(), id))
		want("frozen", true)
		do(f.UnpauseContainer(t.Context(), id))
		do(f.UnpauseContainer(t.Context(), id))
		want("thawed", false)
		f.PauseOutside(id, true)
		do(f.StopContainer(t.Context(), id, time.Second))
		want("stopped", true, false)
		do(f.StartContainer(t.Context(), id))
		do(f.PauseContainer(t.Context(), id))
		f.KillOutside(id)
		want("killed", true)
	})
}

func TestStopOfAFrozenContainerWaitsForTheGracePeriod(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		f.StopBehavior = func(id string) time.Duration {
			if state(t, f, id).Paused {
				t.Error("it can't see the signal")
			}
			return 3 * time.Second
		}
		id := startOne(t, f)
		f.PauseOutside(id, true)
		start := time.Now()
		if err := f.StopContainer(t.Context(), id, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if d := state(t, f, id); time.Since(start) != 3*time.Second || d.ExitCode != 143 {
			t.Errorf("after %s: %+v", time.Since(start), d)
		}
	})
}

func TestVerdictOnAFrozenContainerComesWithTheNextProbe(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		f.HealthBehavior = func(dockerx.ContainerSpec) (dockerx.Health, time.Duration) { return dockerx.HealthHealthy, time.Minute }
		id := startSpec(t, f, checkedContainer)
		want := func(inspected, listed dockerx.Health) {
			t.Helper()
			synctest.Wait()
			list, err := f.ListContainers(t.Context(), nil)
			if got := state(t, f, id).Health; err != nil || got != inspected || list[0].Health != listed {
				t.Errorf("inspected %q, listed %q, want %q, %q", got, list[0].Health, inspected, listed)
			}
		}
		f.PauseOutside(id, true)
		time.Sleep(time.Hour) // the verdict of the start arrives meanwhile
		want(dockerx.HealthStarting, dockerx.HealthNone)
		f.PauseOutside(id, false)
		want(dockerx.HealthStarting, dockerx.HealthUnhealthy)
		time.Sleep(defaultInterval)
		want(dockerx.HealthHealthy, dockerx.HealthHealthy)

		f.PauseOutside(id, true)
		f.SetHealth(id, dockerx.HealthUnhealthy)
		f.PauseOutside(id, false)
		want(dockerx.HealthHealthy, dockerx.HealthUnhealthy)
		time.Sleep(defaultInterval - 1)
		f.PauseOutside(id, true) // before the probe of the previous thaw
		time.Sleep(time.Hour)
		f.PauseOutside(id, false)
		want(dockerx.HealthHealthy, dockerx.HealthUnhealthy)
		time.Sleep(defaultInterval)
		want(dockerx.HealthUnhealthy, dockerx.HealthUnhealthy)
	})
}
