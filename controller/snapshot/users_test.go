package snapshot

import (
	"context"
	"testing"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

type records struct {
	Store
	all []store.Sandbox
}

func (r records) List(context.Context, store.Filter) ([]store.Sandbox, error) { return r.all, nil }

func (r records) InstanceIDs() []string { return []string{"new", "former"} }

func TestARefusalNamesTheSandboxesOfASnapshot(t *testing.T) {
	s := &agboxv1.Snapshot{SnapshotId: "snap", Image: "sha256:1"}
	box := func(id, name, image string, run storev1.RunState) store.Sandbox {
		return store.Sandbox{ID: id, Name: name, Spec: &agboxv1.CreateSpec{Image: image}, Desired: &storev1.Desired{RunState: run}}
	}
	const runs, goes = storev1.RunState_RUN_STATE_RUN, storev1.RunState_RUN_STATE_DELETE
	service := box("id-3", "shop", "x", runs)
	service.Spec.OptionalServices = []*agboxv1.ServiceSpec{{Name: "db", Image: s.GetImage()}}
	for name, row := range map[string]struct {
		all  []store.Sandbox
		want string
	}{
		"none": {[]store.Sandbox{box("id-1", "web", "x", runs)}, ""},
		"one, by its name": {
			[]store.Sandbox{box("id-1", "web", s.GetImage(), runs), box("id-2", "db", "x", runs)}, "delete sandbox web first",
		},
		"two, one without a name": {
			[]store.Sandbox{box("id-1", "web", s.GetImage(), runs), box("id-2", "", naming.SnapshotRef("former", "snap"), runs)}, "delete sandboxes id-2, web first",
		},
		"by the name of an earlier version": {[]store.Sandbox{box("id-2", "db", naming.SnapshotRef("", "snap"), runs)}, "delete sandbox db first"},
		"another daemon's":                  {[]store.Sandbox{box("id-2", "db", naming.SnapshotRef("other", "snap"), runs)}, ""},
		"a service":                         {[]store.Sandbox{service}, "delete sandbox shop first"},
		"more than a line holds": {
			[]store.Sandbox{
				box("1", "a", s.GetImage(), runs), box("2", "b", s.GetImage(), runs), box("3", "c", s.GetImage(), runs),
				box("4", "d", s.GetImage(), runs), box("5", "e", s.GetImage(), runs), box("6", "f", s.GetImage(), runs),
			}, "delete sandboxes a, b, c, d, e and 1 more first",
		},
		"one that is being deleted": {[]store.Sandbox{box("id-1", "web", s.GetImage(), goes)}, "the delete of sandbox web goes on; try again when it is done"},
		"one that is, one that is not": {
			[]store.Sandbox{box("id-1", "web", s.GetImage(), goes), box("id-2", "db", s.GetImage(), runs)}, "delete sandbox db first",
		},
	} {
		k := &Keeper{o: Options{Store: records{all: row.all}}}
		if got, err := k.users(t.Context(), s); got != row.want || err != nil {
			t.Errorf("%s: %q, %v; want %q", name, got, err, row.want)
		}
	}
}
