package controller_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// Secrets are delivered before a container starts, follow their files over the death of the daemon, and are removed with the sandbox.
func TestSecretsAreDeliveredBeforeTheStartAndFollowTheirFiles(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		source := filepath.Join(t.TempDir(), "token")
		write := func(value string) {
			t.Helper()
			if err := os.WriteFile(source, []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		secrets := []*agboxv1.SecretSpec{{Name: "token", File: source, Target: "/run/secrets/token"}}
		spec := &agboxv1.CreateSpec{Image: image, Secrets: secrets, RequiredServices: []*agboxv1.ServiceSpec{{
			Name: "db", Image: image, Secrets: secrets, Healthcheck: &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}},
		}}}
		const box = "box-a"
		has := func(value string) {
			t.Helper()
			for service, file := range map[string]string{"": "token", "db": "token"} {
				if s, err := p.journals().Secret(box, service, file); err != nil || string(s.Value) != value {
					t.Errorf("service %q has %q, %v; want %q", service, s.Value, err, value)
				}
			}
		}
		if _, err := p.store.CreateSandbox(t.Context(), box, "", spec, nil); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		if s := p.daemon.Status(box); !strings.Contains(s, "does not exist on this host") {
			t.Errorf("without the file the status is %q", s)
		}
		write("value-1") // it was there at the accept, and is there again
		pass(time.Minute)
		p.wantState(t, box, ready)
		has("value-1")
		mounted, ok := p.engine.Spec(naming.Service(box, "db"))
		if !ok || !slices.ContainsFunc(mounted.Mounts, func(m dockerx.Mount) bool { return m.Target == "/run/secrets" && !m.Writable }) {
			t.Errorf("the service mounts %+v", mounted.Mounts)
		}
		write("value-2, which is longer")
		pass(2 * time.Second)
		has("value-2, which is longer")
		write("value-3")
		p.restarted(t, time.Second)
		pass(2 * time.Second)
		has("value-3")

		if err := os.Remove(source); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if got := p.daemon.SecretProblems(box); len(got) != 2 || p.daemon.UnreadableSecrets() != 2 {
			t.Errorf("problems: %q", got)
		}
		if _, err := p.store.RequestStop(t.Context(), box, "stop_requested"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if _, err := p.store.RequestResume(t.Context(), box); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		p.wantState(t, box, ready)
		has("value-3")
		p.delete(t, box, false)
		pass(time.Minute)
		p.wantState(t, box, deleted)
		if _, err := p.journals().Secret(box, "", "token"); !errdefs.IsNotFound(err) || p.daemon.UnreadableSecrets() != 0 {
			t.Errorf("after the delete: %v", err)
		}
	})
}
