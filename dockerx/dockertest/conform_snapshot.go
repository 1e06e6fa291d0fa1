package dockertest

import (
	"archive/tar"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

// checkCommit makes an image of a container that has a secret in its environment and its labels.
func checkCommit(w *world) {
	spec := w.spec("", "")
	spec.Env = []string{"SECRET=hunter2", "A=own"}
	spec.Labels["secret"] = "hunter2"
	id := w.create(spec)
	w.ok(w.e.WriteTar(w.ctx, id, "/tmp", time.Minute, archiveOf(w, tar.Header{Name: "./file", Typeflag: tar.TypeReg, Mode: 0o640, Linkname: "12345"})))
	base := w.inspect(id).Image

	part := must(w.e.CommitContainer(w.ctx, id, map[string]string{"part": "yes"}))(w)
	w.refused(w.e.RemoveImage(w.ctx, base), errdefs.ErrFailedPrecondition)
	got := w.images("part")
	if len(got) != 1 || got[0].ID != part || len(got[0].Refs) != 0 || got[0].Labels[worldLabel] != w.name || got[0].Created.IsZero() || got[0].Size == 0 {
		w.Fatalf("committed %s, listed %+v", part, got)
	}

	ref := strings.ToLower(w.name) + ":1"
	labels := maps.Clone(w.labels)
	labels["whole"] = "yes"
	first := must(w.e.RewriteImage(w.ctx, part, base, ref, labels))(w)
	if again := must(w.e.RewriteImage(w.ctx, part, base, ref, labels))(w); again.ID != first.ID || first.ID == part {
		w.Errorf("made %s, then %s of %s", first.ID, again.ID, part)
	}
	w.ok(w.e.RemoveImage(w.ctx, part))
	w.ok(w.e.RemoveImage(w.ctx, part))
	w.ok(w.e.RemoveContainer(w.ctx, id)) // the image outlives it

	whole := must(w.e.InspectImage(w.ctx, first.ID))(w)
	want := must(w.e.InspectImage(w.ctx, ConformImage))(w)
	if !slices.Equal(whole.Env, want.Env) || whole.User != want.User || whole.WorkingDir != want.WorkingDir ||
		!slices.Equal(whole.Entrypoint, want.Entrypoint) || !slices.Equal(whole.Cmd, want.Cmd) || !maps.Equal(whole.Labels, labels) {
		w.Errorf("the image is %+v, want the configuration of %+v with the labels %v", whole, want, labels)
	}
	if got := w.images("whole"); len(got) != 1 || got[0].ID != first.ID || !slices.Equal(got[0].Refs, []string{ref}) {
		w.Errorf("listed %+v, want %s alone", got, ref)
	}

	made := w.spec("made", "")
	made.Image = first.ID
	id = w.create(made)
	w.ok(w.e.StartContainer(w.ctx, id))
	if content, err := w.e.ReadContainerFile(w.ctx, id, "/tmp/file", 5); err != nil || string(content) != "12345" {
		w.Errorf("in a container of the image: %q, %v", content, err)
	}
	if env := w.inspect(id).Env; slices.ContainsFunc(env, func(v string) bool { return strings.Contains(v, "hunter2") }) {
		w.Errorf("its environment: %q", env)
	}
	w.refused(w.e.RemoveImage(w.ctx, first.ID), errdefs.ErrFailedPrecondition)
	w.kill(id)
	w.refused(w.e.RemoveImage(w.ctx, first.ID), errdefs.ErrFailedPrecondition)
	w.ok(w.e.RemoveContainer(w.ctx, id))
	w.ok(w.e.RemoveImage(w.ctx, first.ID))
	w.refused(errOf(w.e.InspectImage(w.ctx, first.ID)), errdefs.ErrNotFound)
	w.refused(errOf(w.e.RewriteImage(w.ctx, part, base, ref, labels)), errdefs.ErrNotFound)
	w.refused(errOf(w.e.CommitContainer(w.ctx, id, nil)), errdefs.ErrNotFound)
	if left := must(w.e.ListImages(w.ctx, w.labels))(w); len(left) != 0 {
		w.Errorf("left: %+v", left)
	}
}

// images returns our images that also have a label.
func (w *world) images(label string) []dockerx.LocalImage {
	w.Helper()
	labels := maps.Clone(w.labels)
	labels[label] = "yes"
	return must(w.e.ListImages(w.ctx, labels))(w)
}

func checkCommitFreezesNothing(w *world) {
	f := w.follow(time.Time{})
	defer w.stop(f)
	id := w.create(w.spec("", ""))
	w.ok(w.e.StartContainer(w.ctx, id))
	w.ok(errOf(w.e.CommitContainer(w.ctx, id, nil)))
	w.wantState(id, dockerx.StateRunning)
	frozen := w.frozen("frozen")
	w.ok(errOf(w.e.CommitContainer(w.ctx, frozen, nil)))
	w.wantState(frozen, dockerx.StatePaused)
	w.wantStories(f, map[string][]string{
		id:     {"container create", "container start"},
		frozen: {"container create", "container start", "container pause"},
	})
	w.ok(w.e.UnpauseContainer(w.ctx, frozen))
	w.kill(frozen)
	w.kill(id)
}
