package e2b

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"

	"github.com/distribution/reference"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// snapshotRepository is the name of the images of snapshots in the engine.
const snapshotRepository = "agbox-snapshot"

// snapshotItem is a snapshot. It has no names: its ID is the template to create sandboxes from.
type snapshotItem struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func snapshotOf(s *agboxv1.Snapshot) snapshotItem {
	return snapshotItem{SnapshotID: s.GetSnapshotId(), Names: []string{}}
}

// createSnapshot makes a snapshot of a sandbox, and waits until it is complete. If the client leaves, it is made all the same, and listed.
func (g *Gateway) createSnapshot(w http.ResponseWriter, r *http.Request, owner string) error {
	var body struct{}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	sb, err := g.sandbox(r.Context(), owner, r.PathValue("id"))
	if err != nil {
		return err
	}
	if stateOf(sb) == starting {
		if _, err := g.ready(r.Context(), sb.GetSandboxId()); err != nil {
			return err
		}
	}
	made, err := g.api.CreateSnapshot(r.Context(), sb.GetSandboxId(), strings.ToLower(rand.Text()))
	if err != nil {
		return err
	}
	answer(w, http.StatusCreated, snapshotOf(made))
	return nil
}

// listSnapshots answers a page of the owner's snapshots, newest first. No snapshot has a name.
func (g *Gateway) listSnapshots(w http.ResponseWriter, r *http.Request, owner string) error {
	query := r.URL.Query()
	f, err := filterOf(query, nil)
	if err != nil {
		return err
	}
	all, err := g.api.ListSnapshots(r.Context(), query.Get("sandboxID"), owner)
	if err != nil {
		return err
	}
	if query.Get("name") != "" {
		all = nil
	}
	place := func(s *agboxv1.Snapshot) item {
		return item{StartedAt: s.GetCreatedAt().AsTime(), SandboxID: s.GetSnapshotId()}
	}
	slices.SortFunc(all, func(a, b *agboxv1.Snapshot) int { return f.compare(place(a), place(b)) })
	if f.after != nil {
		all = slices.DeleteFunc(all, func(s *agboxv1.Snapshot) bool { return f.compare(place(s), *f.after) <= 0 })
	}
	if len(all) > f.limit {
		all = all[:f.limit]
		w.Header().Set("X-Next-Token", tokenOf(place(all[f.limit-1])))
	}
	items := []snapshotItem{}
	for _, s := range all {
		items = append(items, snapshotOf(s))
	}
	answer(w, http.StatusOK, items)
	return nil
}

// snapshot returns a snapshot of the owner. Errors: 404, also for those of others.
func (g *Gateway) snapshot(ctx context.Context, owner, id string) (*agboxv1.Snapshot, error) {
	all, err := g.api.ListSnapshots(ctx, "", owner)
	if err != nil {
		return nil, err
	}
	if n := slices.IndexFunc(all, func(s *agboxv1.Snapshot) bool { return s.GetSnapshotId() == id }); n >= 0 {
		return all[n], nil
	}
	return nil, failf(http.StatusNotFound, "snapshot %q was not found", id)
}

// baseOf returns what a template stands for: an image of the configuration, a reference, or a template or snapshot of the owner, in this order. An image that
// belongs to no registry is only reached as a snapshot, because its ID and its name in the engine tell nothing of its owner. Errors: 404.
func (g *Gateway) baseOf(ctx context.Context, owner, template string) (base, error) {
	image, known := g.Templates()[template]
	switch {
	case known:
		return base{image: image}, nil
	case isOfThisEngine(template):
		return base{}, failf(http.StatusNotFound, "template %q was not found: it names an image of this host; write a name with a tag, such as debian:13, or the ID of a snapshot", template)
	case strings.ContainsAny(template, "/:@"):
		return base{image: template}, nil
	case template == DefaultTemplate:
		return base{image: defaultImage}, nil
	}
	switch t, err := g.template(ctx, owner, template); {
	case err == nil && t.GetImage() == "":
		return base{}, failf(http.StatusNotFound, "template %q was not found: none of its builds is ready", template)
	case err == nil:
		return base{t.GetImage(), t.GetSettings()}, nil
	case failureOf(err).Code != http.StatusNotFound:
		return base{}, err
	}
	switch s, err := g.snapshot(ctx, owner, template); {
	case err == nil:
		return base{image: s.GetImage()}, nil
	case failureOf(err).Code != http.StatusNotFound:
		return base{}, err
	}
	return base{}, failf(http.StatusNotFound,
		"template %q was not found: build it, add it to e2b.templates in the configuration of agboxd, or write an image reference with a tag, such as debian:13, or the ID of a snapshot",
		template)
}

// isOfThisEngine reports whether a template is an image ID, which the engine also finds by a part of it, or the name of the image of a
// snapshot or a build.
func isOfThisEngine(template string) bool {
	if strings.HasPrefix(template, "sha256:") {
		return true
	}
	named, err := reference.ParseNormalizedNamed(template)
	return err == nil && slices.Contains([]string{snapshotRepository, templateRepository}, reference.FamiliarName(named))
}
