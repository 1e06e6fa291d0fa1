package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/host/lockfile"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/purge"
)

// purged is a place with files, and an engine with objects of its instance, of a former one and of another daemon.
type purged struct {
	*place
	engine *dockertest.Fake
	outer  string // logs outside of the data directory
	out    bytes.Buffer
}

const formerInstance, otherInstance = "0e12dd5b-58f1-4a5c-8d6b-3f5f9a1c2b3d", "11111111-58f1-4a5c-8d6b-3f5f9a1c2b3d"

func newPurged(t *testing.T) *purged {
	p := &purged{place: newPlace(t), engine: dockertest.NewFake(), outer: t.TempDir()}
	t.Cleanup(func() { p.must(p.engine.Close()) })
	p.add("one1")
	s := p.open()
	p.must(s.RememberInstances(t.Context(), []string{formerInstance}))
	own := s.InstanceID()
	p.must(s.Close())
	p.must(os.WriteFile(filepath.Join(p.paths.DataDir, "instance"), []byte(own+"\n"), 0o600))
	for _, dir := range []string{"s/0123456789abcdef/out", "shim/x", "backups"} {
		p.must(os.MkdirAll(filepath.Join(p.paths.DataDir, dir), 0o700))
	}
	for _, dir := range []string{"one1", "somebody-elses"} {
		p.must(os.MkdirAll(filepath.Join(p.outer, dir), 0o700))
	}
	p.engine.AddImage("x", dockerx.Image{})
	for _, instance := range []string{own, formerInstance, otherInstance} {
		p.populate(instance)
	}
	return p
}

// populate adds a running container on a network, a named volume and the marker.
func (p *purged) populate(instance string) {
	ctx, e := p.t.Context(), p.engine
	labels := map[string]string{naming.Instance: instance}
	n, err := e.CreateNetwork(ctx, dockerx.NetworkSpec{Name: "net-" + instance, Labels: labels})
	p.must(err)
	p.must(e.CreateVolume(ctx, "vol-"+instance, labels))
	p.must(e.CreateVolume(ctx, naming.MarkerVolume(instance), map[string]string{naming.Instance: instance, naming.Marker: "engine"}))
	id, err := e.CreateContainer(ctx, dockerx.ContainerSpec{Name: "c-" + instance, Image: "x", Labels: labels, NetworkID: n.ID})
	p.must(err)
	p.must(e.StartContainer(ctx, id))
}

func (p *purged) options(volumes bool) purge.Options {
	p.out.Reset()
	return purge.Options{Paths: p.paths, Logs: p.outer, Backups: filepath.Join(p.paths.DataDir, "backups"), Engine: p.engine, Volumes: volumes, Out: &p.out}
}

// purge looks for what a purge removes.
func (p *purged) purge(o purge.Options) *purge.Purge {
	p.t.Helper()
	found, err := purge.New(p.t.Context(), o)
	p.must(err)
	return found
}

// left returns the names of all objects of the engine.
func (p *purged) left() (names []string) {
	for _, c := range p.engine.Containers() {
		names = append(names, c.Name)
	}
	for _, n := range p.engine.Networks() {
		names = append(names, n.Name)
	}
	volumes, err := p.engine.ListVolumes(p.t.Context(), nil)
	p.must(err)
	for _, v := range volumes {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	return names
}

var othersObjects = []string{naming.MarkerVolume(otherInstance), "c-" + otherInstance, "net-" + otherInstance, "vol-" + otherInstance}

func (p *purged) wantGone(volumes bool) {
	p.t.Helper()
	left := p.left()
	kept := 0
	left = slices.DeleteFunc(left, func(name string) bool {
		own := strings.HasPrefix(name, "vol-") && !strings.HasSuffix(name, otherInstance)
		if own {
			kept++
		}
		return own
	})
	want := map[bool]int{true: 0, false: 2}[volumes]
	slices.Sort(left)
	if other := slices.Sorted(slices.Values(othersObjects)); !slices.Equal(left, other) || kept != want {
		p.t.Errorf("the engine has %v, want %v; %d named volumes, want %d", left, other, kept, want)
	}
	for _, path := range []string{p.paths.DataDir, p.paths.RunDir, filepath.Join(p.outer, "one1")} {
		if exists(path) {
			p.t.Errorf("%s is there", path)
		}
	}
	if !exists(filepath.Join(p.outer, "somebody-elses")) {
		p.t.Error("another directory beside the logs is gone")
	}
}

func (p *purged) lockAll() (release func()) {
	_, release, err := lockDatabase(p.t.Context(), p.paths)
	p.must(err)
	return release
}

func TestPurgeRemovesWhatBelongsToTheInstance(t *testing.T) {
	for _, volumes := range []bool{false, true} {
		p := newPurged(t)
		release := p.lockAll()
		p.must(p.purge(p.options(volumes)).Run(t.Context()))
		release()
		p.wantGone(volumes)
		if stays := strings.Contains(p.out.String(), "stays: volume vol-"+formerInstance); stays == volumes {
			t.Errorf("volumes %v: %s", volumes, &p.out)
		}
	}
}

// TestAPurgeThatDiesAnywhere: it can be repeated, and agboxd does not start in between.
func TestAPurgeThatDiesAnywhere(t *testing.T) {
	for _, at := range []string{"begin", "objects", "logs", "files", "records"} {
		t.Run(at, func(t *testing.T) {
			p := newPurged(t)
			release := p.lockAll()
			o := p.options(true)
			o.After = func(step string) error {
				if step == at {
					return errCrash
				}
				return nil
			}
			if err := p.purge(o).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "run it again") {
				t.Fatalf("run: %v", err)
			}
			release()
			if code, _, errs := outcome(); code != exitStore || !strings.Contains(errs, "run \"agboxd purge\" again") {
				t.Errorf("a start: %d %q", code, errs)
			}
			release = p.lockAll()
			p.must(p.purge(p.options(true)).Run(t.Context()))
			release()
			p.wantGone(true)
		})
	}
}

// TestPurgeKeepsSnapshots: it says so, and removes what was to become one.
func TestPurgeKeepsSnapshots(t *testing.T) {
	p := newPurged(t)
	ctx, ours := t.Context(), map[string]string{naming.SnapshotInstance: formerInstance, naming.SnapshotPart: "half"}
	half, err := p.engine.CommitContainer(ctx, "c-"+formerInstance, ours)
	p.must(err)
	delete(ours, naming.SnapshotPart)
	ours[naming.SnapshotID] = "snap"
	_, err = p.engine.RewriteImage(ctx, half, "x", naming.SnapshotRef(formerInstance, "snap"), ours)
	p.must(err)
	p.must(p.purge(p.options(true)).Run(ctx))
	if !strings.Contains(p.out.String(), "stays: snapshot snap, image "+naming.SnapshotRef(formerInstance, "snap")) {
		t.Errorf("it said:\n%s", &p.out)
	}
	images, err := p.engine.ListImages(ctx, map[string]string{naming.SnapshotInstance: ""})
	p.must(err)
	if len(images) != 1 || images[0].Labels[naming.SnapshotID] != "snap" {
		t.Errorf("images %v are left", images)
	}
}

func TestPurgeAsksFirst(t *testing.T) {
	p := newPurged(t)
	defer p.lockAll()()
	o := p.purge(p.options(false))
	before := p.left()
	for _, answer := range []string{"", "\n", "yes\n", formerInstance + "\n"} {
		if err := o.Confirm(t.Context(), strings.NewReader(answer)); err == nil || !strings.Contains(err.Error(), "nothing was removed") {
			t.Errorf("%q: %v", answer, err)
		}
	}
	p.must(o.Confirm(t.Context(), strings.NewReader(o.Instances()[0]+"\n")))
	for _, line := range []string{"removes container c-" + formerInstance, "removes network net-", "removes volume " + naming.MarkerVolume(formerInstance), "removes " + p.paths.DataDir, "stays: volume vol-", "removes " + filepath.Join(p.outer, "one1")} {
		if !strings.Contains(p.out.String(), line) {
			t.Errorf("%q is missing in:\n%s", line, &p.out)
		}
	}
	if strings.Contains(p.out.String(), otherInstance) || !slices.Equal(p.left(), before) || purge.CheckInterrupted(p.paths.DataDir) != nil {
		t.Errorf("something was removed, or something of another daemon listed:\n%s", &p.out)
	}
}

func TestPurgeWithoutTheRightEngine(t *testing.T) {
	p := newPurged(t)
	defer p.lockAll()()
	p.engine.Down(true)
	if _, err := purge.New(t.Context(), p.options(false)); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "--without-engine") {
		t.Errorf("the engine is down: %v", err)
	}
	p.engine.Down(false)
	o := p.options(false)
	another := dockertest.NewFake()
	defer func() { p.must(another.Close()) }()
	o.Engine = another
	if _, err := purge.New(t.Context(), o); err == nil || !strings.Contains(err.Error(), "it may be another one") {
		t.Errorf("another engine: %v", err)
	}
	o.Engine = nil
	found := p.purge(o)
	before := p.left()
	p.must(found.Run(t.Context()))
	if !slices.Equal(p.left(), before) || exists(p.paths.DataDir) {
		t.Errorf("without the engine: %v", p.left())
	}
}

// TestPurgeOfADamagedDatabase knows the instance from the file beside it.
func TestPurgeOfADamagedDatabase(t *testing.T) {
	p := newPurged(t)
	defer p.lockAll()()
	p.must(os.WriteFile(p.paths.Database, []byte(strings.Repeat("no database ", 1000)), 0o600))
	o := p.purge(p.options(true))
	p.must(o.Run(t.Context()))
	if left := strings.Join(p.left(), " "); !strings.Contains(left, formerInstance) || strings.Contains(left, o.Instances()[0]) || exists(p.paths.DataDir) {
		t.Errorf("left: %s", left)
	}
}

func TestPurgeCommand(t *testing.T) {
	p := newPlace(t)
	if code, out, _ := outcome("purge"); code != exitOK || !strings.Contains(out, "nothing to purge") || exists(p.paths.DataDir) {
		t.Errorf("nothing there: %d %q", code, out)
	}
	p.add("one1")
	held, err := lockfile.Acquire(p.paths.Lock)
	p.must(err)
	if code, _, errs := outcome("purge", "--yes"); code != exitRunning || !strings.Contains(errs, "another agboxd is running") {
		t.Errorf("beside a daemon: %d %q", code, errs)
	}
	p.must(held.Close())
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "none"))
	if code, _, errs := outcome("purge", "--yes"); code != exitRuntime || !strings.Contains(errs, "--without-engine") {
		t.Errorf("no engine: %d %q", code, errs)
	}
	if code, out, _ := outcome("purge", "--without-engine", "--dry-run"); code != exitOK || !strings.Contains(out, "would remove "+p.paths.DataDir) || !exists(p.paths.Database) {
		t.Errorf("dry run: %d %q", code, out)
	}
	if code, _, errs := outcome("purge", "--without-engine", "--yes"); code != exitOK || exists(p.paths.DataDir) || exists(p.paths.RunDir) {
		t.Errorf("%d %q", code, errs)
	}
}

// stubborn is an engine that completes a create of a killed daemon while objects are removed.
type stubborn struct {
	*dockertest.Fake
	late func()
}

func (s *stubborn) RemoveVolume(ctx context.Context, name string) error {
	if late := s.late; late != nil {
		s.late = nil
		late()
	}
	return s.Fake.RemoveVolume(ctx, name)
}

func TestPurgeRemovesWhatAppearsMeanwhile(t *testing.T) {
	p := newPurged(t)
	defer p.lockAll()()
	var found *purge.Purge
	o := p.options(true)
	o.Engine = &stubborn{p.engine, func() {
		_, err := p.engine.CreateContainer(t.Context(), dockerx.ContainerSpec{Name: "late", Image: "x", Labels: map[string]string{naming.Instance: found.Instances()[0]}})
		p.must(err)
	}}
	found = p.purge(o)
	p.must(found.Run(t.Context()))
	p.wantGone(true)
}
