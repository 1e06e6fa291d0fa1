package dockertest

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

var checkedContainer = dockerx.ContainerSpec{
	Name: "c", Image: ConformImage, Labels: map[string]string{"ours": "1"}, Healthcheck: &dockerx.Healthcheck{Test: []string{"CMD", "x"}},
}

// startSpec creates and starts a container.
func startSpec(t *testing.T, f *Fake, spec dockerx.ContainerSpec) string {
	t.Helper()
	id, err := f.CreateContainer(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestHealthyAtOnceByDefault(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		f.HealthBehavior = nil
		if h := state(t, f, startSpec(t, f, checkedContainer)).Health; h != dockerx.HealthHealthy {
			t.Errorf("health %q", h)
		}
	})
}

func TestHealthBehavior(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		f.HealthBehavior = func(spec dockerx.ContainerSpec) (dockerx.Health, time.Duration) {
			if spec.Name != "c" {
				t.Errorf("asked for %s", spec.Name)
			}
			return dockerx.HealthUnhealthy, time.Minute
		}
		id := startSpec(t, f, checkedContainer)
		want := func(h dockerx.Health) {
			t.Helper()
			synctest.Wait()
			if got := state(t, f, id).Health; got != h {
				t.Errorf("health %q, want %q", got, h)
			}
		}
		time.Sleep(time.Minute - time.Nanosecond)
		want(dockerx.HealthStarting)
		time.Sleep(time.Nanosecond)
		want(dockerx.HealthUnhealthy)
		f.SetHealth(id, dockerx.HealthHealthy)
		want(dockerx.HealthHealthy)
		f.ExitContainer(id, 1, false)
		want(dockerx.HealthNone)
		f.SetHealth(id, dockerx.HealthHealthy) // an exited container
		want(dockerx.HealthNone)

		// A verdict on an ended run does not apply to the next one.
		if err := f.StartContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		f.ExitContainer(id, 1, false)
		if err := f.StartContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(45 * time.Second)
		want(dockerx.HealthStarting)
	})
}

func TestSetInfoAddsCapabilities(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		f.SetInfo(func(i *dockerx.Info) {
			i.Runtimes = append(i.Runtimes, "runsc")
			i.GPUs, i.DiskLimit, i.StartInterval = true, true, true
		})
		spec := checkedContainer
		spec.Runtime, spec.GPUs, spec.DiskBytes = "runsc", "all", 1<<30
		h := *spec.Healthcheck
		h.StartInterval = time.Second
		spec.Healthcheck = &h
		startSpec(t, f, spec)
		if info, err := f.Info(t.Context()); err != nil || !info.GPUs || info.Run == "" {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

func TestPortInUseOutsideOfTheEngine(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		n, err := f.CreateNetwork(t.Context(), dockerx.NetworkSpec{Name: "n"})
		if err != nil {
			t.Fatal(err)
		}
		spec := running
		spec.NetworkID, spec.Ports = n.ID, []dockerx.Port{{ContainerPort: 80, HostPort: 80, Protocol: "tcp"}}
		id, err := f.CreateContainer(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		f.TakePort(80, "udp", true)
		f.TakePort(80, "tcp", true)
		if err := f.StartContainer(t.Context(), id); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("start on a port that is taken: %v", err)
		}
		f.TakePort(80, "tcp", false)
		if err := f.StartContainer(t.Context(), id); err != nil {
			t.Error(err)
		}
	})
}

func TestFilesOfContainers(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		id := startSpec(t, f, running)
		archive := func(content string) io.Reader {
			var buf bytes.Buffer
			w := tar.NewWriter(&buf)
			_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./passwd", Mode: 0o600, Size: int64(len(content))})
			_, _ = io.WriteString(w, content)
			_ = w.Close()
			return &buf
		}
		if err := f.WriteTar(t.Context(), id, "/etc", time.Minute, archive("changed")); err != nil {
			t.Fatal(err)
		}
		if got, ok := f.File("c", "/etc/passwd"); !ok || string(got) != "changed" {
			t.Errorf("%q, %t", got, ok)
		}
		for _, name := range []string{"/etc", "/no", "/no/such"} {
			if _, ok := f.File(id, name); ok {
				t.Errorf("%s is a file", name)
			}
		}
		f.RemoveContainerOutside(id)
		if got, ok := f.File(startSpec(t, f, running), "/etc/passwd"); !ok || string(got) == "changed" {
			t.Errorf("a new container has the files of an old one: %q", got)
		}
	})
}

func TestWriteTarExceedsItsDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		id := startOne(t, f)
		f.Delay(dockerx.OpWriteTar, time.Minute)
		err := f.WriteTar(t.Context(), id, "/tmp", time.Second, bytes.NewReader(make([]byte, 1024)))
		if !errdefs.IsUnavailable(err) {
			t.Errorf("past its deadline: %v", err)
		}
		own := errors.New("own")
		f.Fail(dockerx.OpWriteTar, 1, own, true)
		f.Delay(dockerx.OpWriteTar, 0)
		if err := f.WriteTar(t.Context(), id, "/tmp", time.Second, bytes.NewReader(make([]byte, 1024))); !errors.Is(err, own) {
			t.Errorf("ordered: %v", err)
		}
	})
}

func TestLimitsRefusedByTheKernel(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		id := startOne(t, f)
		f.Fail(dockerx.OpUpdateContainer, 1, errdefs.ErrInternal, false)
		if err := f.UpdateContainer(t.Context(), id, dockerx.Limits{MemoryBytes: 64 << 20}); !errdefs.IsInternal(err) {
			t.Error(err)
		}
		if l := state(t, f, id).Limits; l != (dockerx.Limits{}) {
			t.Errorf("limits %+v", l)
		}
	})
}
