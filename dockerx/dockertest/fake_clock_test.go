package dockertest

import (
	"testing"
	"time"

	"github.com/agbox/agbox/dockerx"
)

func TestContainerTimesUseTheHostsWallClock(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		step := time.Hour
		f.ListLag, f.Now = time.Second, func() time.Time { return time.Now().Add(step) }
		id := startOne(t, f)
		if d := state(t, f, id); !d.Created.Equal(f.Now()) || !d.StartedAt.Equal(f.Now()) {
			t.Errorf("%+v", d)
		}
		step = -time.Hour
		f.ExitContainer(id, 0, false)
		if d := state(t, f, id); !d.FinishedAt.Equal(f.Now()) {
			t.Errorf("%+v", d)
		}
		for _, want := range []dockerx.State{dockerx.StateRunning, dockerx.StateExited} { // the lag is not measured by the wall clock
			list, err := f.ListContainers(t.Context(), nil)
			if err != nil || list[0].State != want {
				t.Errorf("listed %+v, %v; want %s", list, err, want)
			}
			time.Sleep(f.ListLag)
		}
	})
}
