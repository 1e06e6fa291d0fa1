package controller_test

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// Where the engine has cgroup version 2, primaries and services get a cgroup namespace of their own; elsewhere the engine decides.
func TestCgroupNamespacesArePrivateOnVersion2(t *testing.T) {
	for version, private := range map[string]bool{"1": false, "2": true} {
		withDaemon(t, func(t *testing.T, p *player) {
			p.engine.SetInfo(func(i *dockerx.Info) { i.CgroupVersion = version })
			p.restarted(t, time.Second)
			spec := &agboxv1.CreateSpec{Image: image, OptionalServices: []*agboxv1.ServiceSpec{{Name: "db", Image: image}}}
			if _, err := p.store.CreateSandbox(t.Context(), "box-a", "", spec, nil); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			for _, name := range []string{naming.Primary("box-a"), naming.Service("box-a", "db")} {
				if made, ok := p.engine.Spec(name); !ok || made.Security.PrivateCgroups != private {
					t.Errorf("cgroup version %s: %s: %v, %+v", version, name, ok, made.Security)
				}
			}
		})
	}
}

// The volumes of a read-only root are removed with the sandbox, also if `docker rm` has removed the container and left them.
func TestAReadOnlyRootLeavesNoVolumes(t *testing.T) {
	for what, end := range map[string]func(t *testing.T, p *player){
		"a delete": func(*testing.T, *player) {},
		"a delete after a docker rm without -v": func(t *testing.T, p *player) {
			t.Helper()
			p.engine.RemoveContainerOutside(naming.Primary("box-a"))
		},
	} {
		withDaemon(t, func(t *testing.T, p *player) {
			spec := &agboxv1.CreateSpec{Image: image, Security: &agboxv1.SecuritySpec{ReadOnlyRoot: true}}
			if _, err := p.store.CreateSandbox(t.Context(), "box-a", "", spec, nil); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			p.wantState(t, "box-a", agboxv1.SandboxState_SANDBOX_STATE_READY)
			volumes := func() int {
				t.Helper()
				all, err := p.engine.ListVolumes(t.Context(), map[string]string{naming.SandboxID: "box-a"})
				if err != nil {
					t.Fatal(err)
				}
				return len(all)
			}
			made, _ := p.engine.Spec(naming.Primary("box-a"))
			if !made.Security.ReadOnlyRoot || volumes() != 6 || len(made.Volumes) != 6 {
				t.Errorf("%s: %+v with %d volumes", what, made, volumes())
			}
			if all, err := p.daemon.Volumes(t.Context(), ""); err != nil || len(all) > 0 {
				t.Errorf("%s: they are listed as named ones: %v, %v", what, all, err)
			}
			end(t, p)
			pass(time.Minute)
			p.delete(t, "box-a", false)
			pass(time.Minute)
			p.wantState(t, "box-a", agboxv1.SandboxState_SANDBOX_STATE_DELETED)
			if n := volumes(); n > 0 {
				t.Errorf("%s leaves %d volumes", what, n)
			}
		})
	}
}
