package dockertest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox/agbox/dockerx"
)

// conformFake returns a Fake with the image of the suite.
func conformFake(t testing.TB) *Fake {
	f := NewFake()
	f.AddImage(ConformImage, dockerx.Image{
		User: "nobody", WorkingDir: "/tmp", Env: []string{"A=image", "C=image"}, Entrypoint: []string{"/bin/sleep"}, Cmd: []string{"900"},
	})
	f.HealthBehavior = func(spec dockerx.ContainerSpec) (dockerx.Health, time.Duration) {
		if slices.Contains(spec.Healthcheck.Test, sickTest) {
			return dockerx.HealthUnhealthy, time.Millisecond
		}
		return dockerx.HealthHealthy, time.Millisecond
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFakeConforms(t *testing.T) {
	Conform(t, func(t testing.TB) Subject { return conformFake(t) })
}

func TestFakeThatRefusesDoubledNamesConforms(t *testing.T) {
	Conform(t, func(t testing.TB) Subject {
		f := conformFake(t)
		f.RefuseDoubledNames = true
		return f
	})
}

// bubble runs a test in a synctest bubble with a fresh Fake.
func bubble(t *testing.T, test func(*testing.T, *Fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, conformFake(t)) })
}
