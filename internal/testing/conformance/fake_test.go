package conformance_test

import (
	"os"
	"testing"

	"github.com/agbox/agbox/internal/testing/conformance"
	"github.com/agbox/agbox/internal/testing/conformance/fakedaemon"
	"github.com/agbox/agbox/internal/testing/conformance/fakehost"
)

func TestMain(m *testing.M) {
	fakehost.RunShim()
	os.Exit(m.Run())
}

func TestOnTheFakeEngine(t *testing.T) {
	start := func(t testing.TB, s conformance.Settings) conformance.Daemon { return fakedaemon.Start(t, s) }
	conformance.Run(t, conformance.Target{Start: start, Image: fakedaemon.Image, MissingImage: "missing:1"})
}
