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
