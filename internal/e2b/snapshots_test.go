package e2b_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/testing/conformance"
)

// snapshot makes a snapshot of a sandbox and returns its ID.
func (f *fixture) snapshot(id string) string {
	f.Helper()
	var made struct {
		SnapshotID string
		Names      []string
	}
	f.want(http.StatusCreated, `"names":[]`, "POST", "/sandboxes/"+id+"/snapshots", map[string]any{}).into(f, &made)
	return made.SnapshotID
}

// snapshots lists the IDs of snapshots, in pages of 2.
func (f *fixture) snapshots(query string) (ids []string) {
	f.Helper()
	for token := ""; ; {
		a := f.want(http.StatusOK, "", "GET", "/snapshots?limit=2&nextToken="+token+query, nil)
		var page []struct{ SnapshotID string }
		a.into(f, &page)
		for _, s := range page {
			ids = append(ids, s.SnapshotID)
		}
		if token = a.header.Get("X-Next-Token"); token == "" {
			slices.Sort(ids)
			return ids
		}
	}
}

func TestASandboxFromASnapshot(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	id := f.create(nil)
	snap := f.snapshot(id)
	other := f.create(nil)
	all := []string{snap, f.snapshot(other), f.snapshot(other)}
	slices.Sort(all)
	if got := f.snapshots(""); !slices.Equal(got, all) {
		t.Errorf("listed: %v, want %v", got, all)
	}
	if got := f.snapshots("&sandboxID=" + id); !slices.Equal(got, []string{snap}) {
		t.Errorf("of the first sandbox: %v, want %s", got, snap)
	}
	if got := f.snapshots("&name=x"); len(got) > 0 {
		t.Errorf("of a name: %v", got)
	}
	f.want(http.StatusNoContent, "", "DELETE", "/sandboxes/"+id, nil)
	heir := f.create(map[string]any{"templateID": snap})
	sb, err := f.api.GetSandbox(t.Context(), heir)
	f.must(err)
	if spec := sb.GetSpec(); !strings.HasPrefix(spec.GetImage(), "sha256:") || spec.GetGateway().GetTemplate() != snap {
		t.Errorf("its spec: %v", spec)
	}
	f.want(http.StatusConflict, "delete sandbox "+heir+" first", "DELETE", "/templates/"+snap, nil)
	f.want(http.StatusNoContent, "", "DELETE", "/sandboxes/"+heir, nil)
	_, err = f.api.WaitSandbox(t.Context(), heir, client.Deleted)
	f.must(err)
	f.want(http.StatusNoContent, "", "DELETE", "/templates/"+snap, nil)
	f.want(http.StatusNotFound, "was not found", "DELETE", "/templates/"+snap, nil)
	f.want(http.StatusNotFound, "was not found", "POST", "/sandboxes", map[string]any{"templateID": snap})
}

// The files of another owner are out of reach: neither by the snapshot's ID, nor by any name that the engine knows for its image.
func TestSnapshotsOfOwnersAreApart(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	id := f.create(nil)
	snap := f.snapshot(id)
	all, err := f.api.ListSnapshots(t.Context(), "", "")
	f.must(err)
	image := all[0].GetImage()
	f.key = f.newKey("other")
	if got := f.snapshots(""); len(got) > 0 {
		t.Errorf("another owner sees %v", got)
	}
	f.want(http.StatusNotFound, "was not found", "POST", "/sandboxes/"+id+"/snapshots", nil)
	f.want(http.StatusNotFound, "was not found", "DELETE", "/templates/"+snap, nil)
	ping, err := f.api.Ping(t.Context())
	f.must(err)
	ref := naming.SnapshotRef(ping.GetInstanceId(), snap)
	for _, template := range []string{
		snap, image, strings.TrimPrefix(image, "sha256:"), image[:19], ref, "docker.io/library/" + ref, "index.docker.io/library/" + ref, "docker.io/" + ref,
		ref + "@" + image, "agbox-snapshot@" + image,
	} {
		f.want(http.StatusNotFound, "was not found", "POST", "/sandboxes", map[string]any{"templateID": template})
	}
	f.leftOnly(id)
}
