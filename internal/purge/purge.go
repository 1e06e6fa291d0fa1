// Package purge removes everything that belongs to a data directory, and the directory, while no daemon runs.
package purge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/google/uuid"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/host/disk"
	"github.com/agbox/agbox/internal/host/mountpolicy"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/store"
)

// purging is the file that marks a data directory whose purge has begun. It has the instances, one per line, and is removed last.
func purging(dataDir string) string { return filepath.Join(dataDir, "purging") }

// CheckInterrupted refuses the rest of a data directory whose purge was interrupted: agboxd would take purged sandboxes for lost ones.
func CheckInterrupted(dataDir string) error {
	if !exists(purging(dataDir)) {
		return nil
	}
	return fmt.Errorf("the purge of %s was interrupted: run \"agboxd purge\" again", dataDir)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// IsDataDir reports whether agboxd, or an interrupted purge, has left anything in the data directory.
func IsDataDir(paths config.Paths) bool {
	return exists(paths.Database) || exists(filepath.Join(paths.DataDir, "instance")) || exists(purging(paths.DataDir))
}

// Engine is the part of the engine that a purge uses.
type Engine interface {
	ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error)
	ListNetworks(ctx context.Context, labels map[string]string) ([]dockerx.Network, error)
	ListVolumes(ctx context.Context, labels map[string]string) ([]dockerx.Volume, error)
	ListImages(ctx context.Context, labels map[string]string) ([]dockerx.LocalImage, error)
	RemoveContainer(ctx context.Context, id string) error
	RemoveNetwork(ctx context.Context, id string) error
	RemoveVolume(ctx context.Context, name string) error
	RemoveImage(ctx context.Context, id string) error
}

// Options say what a purge removes, and where it writes its progress.
type Options struct {
	Paths config.Paths
	// Logs and Backups are the directories of exec logs and backups.
	Logs, Backups string
	// Volumes: named volumes are removed too, with their content.
	Volumes bool
	// Engine has the objects; nil: its objects stay.
	Engine Engine
	Out    io.Writer
	// After is called with the name of each completed step; nil: not called. An error ends the purge there. For tests.
	After func(step string) error
}

// Purge removes a data directory and what belongs to it. The caller holds both locks of agboxd. The process may be killed at any point: a
// repeated purge removes the rest.
type Purge struct {
	o         Options
	instances []string
	begun     bool // an earlier purge was interrupted
	sandboxes []string
	unread    error // why the database could not be read
	found     engineObjects
}

// engineObjects are the objects whose labels name one of the instances.
type engineObjects struct {
	containers      []dockerx.Container
	networks        []dockerx.Network
	volumes, marker []string
	// snapshots say which there are. parts are the IDs of images that are of no use: those from which a snapshot was being made, and the steps of builds.
	snapshots, parts []string
	// templates are the IDs of finished builds.
	templates []string
}

// addImages adds an instance's images.
func (o *engineObjects) addImages(ctx context.Context, e Engine, instance string) error {
	images, err := e.ListImages(ctx, map[string]string{naming.SnapshotInstance: instance})
	for _, i := range images {
		ref := naming.FindSnapshotRef(i.Labels, i.Refs)
		switch {
		case i.Labels[naming.SnapshotPart] != "":
			o.parts = append(o.parts, i.ID)
		case ref != "":
			o.snapshots = append(o.snapshots, fmt.Sprintf("snapshot %s, image %s", i.Labels[naming.SnapshotID], ref))
		}
	}
	if err != nil {
		return err
	}
	if images, err = e.ListImages(ctx, map[string]string{naming.BuildInstance: instance}); err != nil {
		return err
	}
	for _, i := range images {
		if id := i.Labels[naming.BuildID]; id != "" && slices.Contains(i.Refs, naming.BuildRef(id)) {
			o.templates = append(o.templates, id)
		}
	}
	if images, err = e.ListImages(ctx, map[string]string{naming.BuildLayer: instance}); err != nil {
		return err
	}
	for _, i := range images {
		if len(i.Refs) == 0 { // users have named the others
			o.parts = append(o.parts, i.ID)
		}
	}
	return nil
}

func (o engineObjects) empty(volumes bool) bool {
	return len(o.containers)+len(o.networks)+len(o.marker) == 0 && (!volumes || len(o.volumes) == 0)
}

// New reads the instances of the data directory and lists their objects. It changes nothing. Errors: ErrUnavailable of the engine; and those that
// say that the objects can't be found.
func New(ctx context.Context, o Options) (*Purge, error) {
	p := &Purge{o: o}
	return p, p.look(ctx)
}

// Instances are the UUIDs of the data directory, the present one first; none if they are not known.
func (p *Purge) Instances() []string { return p.instances }

func (p *Purge) look(ctx context.Context) error {
	text, err := os.ReadFile(purging(p.o.Paths.DataDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.begun = err == nil
	instance, _, err := (recovery.Site{DataDir: p.o.Paths.DataDir}).Instance()
	if err != nil {
		return err
	}
	inventory, err := readInventory(ctx, p.o.Paths.Database)
	if errdefs.IsDataLoss(err) {
		p.unread, err = err, nil
	}
	if err != nil {
		return err
	}
	p.sandboxes = inventory.SandboxIDs
	for _, id := range slices.Concat([]string{instance}, inventory.Instances, strings.Fields(string(text))) {
		if _, err := uuid.Parse(id); err == nil && !slices.Contains(p.instances, id) { // an empty label would select the objects of all daemons
			p.instances = append(p.instances, id)
		}
	}
	if p.o.Engine == nil {
		return nil
	}
	if len(p.instances) == 0 && !p.begun {
		return fmt.Errorf("the instance of %s is not known, so its containers can't be found: --without-engine removes the files only", p.o.Paths.DataDir)
	}
	if p.found, err = p.list(ctx); err != nil {
		return fmt.Errorf("%w; containers and networks can't be found without the engine: start it, or --without-engine removes the files only", err)
	}
	if !p.begun && p.found.empty(true) && len(p.sandboxes) > 0 {
		return fmt.Errorf("this engine has neither the marker volume nor any object of instance %s: it may be another one than agboxd's; set docker.host or "+
			"DOCKER_HOST, or --without-engine removes the files only", p.instances[0])
	}
	return nil
}

// readInventory reads a closed database, in a child process first: a damaged one can fault. A missing one is empty. Errors: ErrDataLoss.
func readInventory(ctx context.Context, database string) (store.Inventory, error) {
	if lost, err := recovery.IsLost(database); lost || err != nil {
		return store.Inventory{}, err
	}
	if err := backup.CheckInChild(ctx, database); err != nil {
		return store.Inventory{}, err
	}
	return store.ReadInventory(database)
}

func (p *Purge) list(ctx context.Context) (o engineObjects, err error) {
	for _, id := range p.instances {
		ours := map[string]string{naming.Instance: id}
		containers, err := p.o.Engine.ListContainers(ctx, ours)
		if err != nil {
			return o, err
		}
		networks, err := p.o.Engine.ListNetworks(ctx, ours)
		if err != nil {
			return o, err
		}
		volumes, err := p.o.Engine.ListVolumes(ctx, ours)
		if err != nil {
			return o, err
		}
		if err := o.addImages(ctx, p.o.Engine, id); err != nil {
			return o, err
		}
		steps, err := p.o.Engine.ListContainers(ctx, map[string]string{naming.BuildLayer: id})
		if err != nil {
			return o, err
		}
		o.containers, o.networks = append(o.containers, slices.Concat(containers, steps)...), append(o.networks, networks...)
		for _, v := range volumes {
			if v.Labels[naming.Marker] != "" || v.Labels[naming.Component] == naming.ComponentRoot {
				o.marker = append(o.marker, v.Name)
			} else {
				o.volumes = append(o.volumes, v.Name)
			}
		}
	}
	return o, nil
}

// Show prints what is removed, each line after verb, and what stays.
func (p *Purge) Show(verb string) error {
	var lines []string
	for _, c := range p.found.containers {
		lines = append(lines, verb+"container "+c.Name)
	}
	for _, n := range p.found.networks {
		lines = append(lines, verb+"network "+n.Name)
	}
	if p.o.Volumes {
		lines = append(lines, prefixed(verb+"volume ", p.found.volumes)...)
	}
	lines = append(lines, prefixed(verb+"volume ", p.found.marker)...)
	lines = append(lines, prefixed(verb+"image ", p.found.parts)...)
	lines = append(lines, prefixed(verb+"", p.directories())...)
	if p.unread != nil {
		lines = append(lines, fmt.Sprintf("the database can't be read (%v): objects of former instances are not known, and logs outside of the data directory stay", p.unread))
	}
	if p.o.Engine == nil {
		lines = append(lines, "containers, networks and volumes stay in the engine")
	}
	_, err := fmt.Fprintln(p.o.Out, strings.Join(append(lines, p.staying()...), "\n"))
	return err
}

func prefixed(with string, all []string) (lines []string) {
	for _, one := range all {
		lines = append(lines, with+one)
	}
	return lines
}

// staying says what is kept.
func (p *Purge) staying() (lines []string) {
	if !p.o.Volumes {
		lines = prefixed("stays: volume ", p.found.volumes)
	}
	lines = append(lines, prefixed("stays: ", p.found.snapshots)...)
	for _, id := range p.found.templates {
		lines = append(lines, fmt.Sprintf("stays: template build %s, image %s", id, naming.BuildRef(id)))
	}
	for _, path := range []string{p.o.Backups, p.o.Paths.ConfigFile} {
		if exists(path) && !inside(p.o.Paths.DataDir, path) {
			lines = append(lines, "stays: "+path)
		}
	}
	return append(lines, "stays: images")
}

// directories are those that are removed with their content: logs outside of the data directory, the data directory, the runtime directory.
func (p *Purge) directories() (all []string) {
	if !inside(p.o.Paths.DataDir, p.o.Logs) {
		for _, id := range p.sandboxes {
			if dir := filepath.Join(p.o.Logs, id); exists(dir) { // other directories may not be ours
				all = append(all, dir)
			}
		}
	}
	all = append(all, p.o.Paths.DataDir)
	if !inside(p.o.Paths.DataDir, p.o.Paths.RunDir) {
		all = append(all, p.o.Paths.RunDir)
	}
	return all
}

// inside reports whether path is dir or in it.
func inside(dir, path string) bool {
	rel, err := filepath.Rel(mountpolicy.Resolve(dir), mountpolicy.Resolve(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// Confirm prints what is removed, and asks for the instance. It returns when ctx ends; a blocked read ends with the process.
func (p *Purge) Confirm(ctx context.Context, in io.Reader) error {
	if err := p.Show("removes "); err != nil {
		return err
	}
	word := "purge"
	if len(p.instances) > 0 {
		word = p.instances[0]
	}
	if _, err := fmt.Fprintf(p.o.Out, "\nNothing of this can be brought back. Type %s to go on: ", word); err != nil {
		return err
	}
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // without an answer nothing is removed
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return errors.New("interrupted: nothing was removed")
	case typed := <-answer:
		if typed != word {
			return errors.New("nothing was removed: the answer is not " + word)
		}
	}
	return nil
}

// Run removes everything that New found, and what the engine creates meanwhile.
func (p *Purge) Run(ctx context.Context) error {
	err := backup.RunSteps(ctx, p.o.After, []backup.Step{
		{Name: "begin", Do: p.begin}, {Name: "objects", Do: p.removeObjects}, {Name: "logs", Do: p.removeLogs}, {Name: "files", Do: p.removeFiles}, {Name: "records", Do: p.removeRecords}, {Name: "end", Do: p.end},
	})
	if err != nil {
		return fmt.Errorf("purge %s: %w; run it again", p.o.Paths.DataDir, err)
	}
	_, err = fmt.Fprintln(p.o.Out, strings.Join(append([]string{fmt.Sprintf("%s is purged", p.o.Paths.DataDir)}, p.staying()...), "\n"))
	return err
}

func (p *Purge) begin(context.Context) error {
	return disk.Replace(purging(p.o.Paths.DataDir), []byte(strings.Join(p.instances, "\n")+"\n"), 0o600)
}

// purgeRounds bounds how often objects are listed again: the engine may complete the create of a daemon that was killed.
const purgeRounds = 5

// removeObjects removes objects until the engine lists none, the marker last.
func (p *Purge) removeObjects(ctx context.Context) error {
	if p.o.Engine == nil {
		return nil
	}
	for range purgeRounds {
		if err := p.removeFound(ctx); err != nil {
			return err
		}
		o, err := p.list(ctx)
		if err != nil {
			return err
		}
		p.found = o
		if o.empty(p.o.Volumes) {
			return nil
		}
	}
	return fmt.Errorf("the engine still lists objects of instance %s: %w", strings.Join(p.instances, ", "), errdefs.ErrUnavailable)
}

func (p *Purge) removeFound(ctx context.Context) error {
	for _, c := range p.found.containers {
		if err := p.o.Engine.RemoveContainer(ctx, c.ID); err != nil && !errdefs.IsAborted(err) { // another removal is in progress
			return err
		}
	}
	for _, n := range p.found.networks {
		if err := p.o.Engine.RemoveNetwork(ctx, n.ID); err != nil {
			return err
		}
	}
	if err := p.removeParts(ctx); err != nil {
		return err
	}
	volumes := p.found.marker
	if p.o.Volumes {
		volumes = slices.Concat(p.found.volumes, p.found.marker)
	}
	for _, name := range volumes {
		if err := p.o.Engine.RemoveVolume(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// removeParts removes images, those on which others were built last, until no more can be: containers outside of agbox use the rest.
func (p *Purge) removeParts(ctx context.Context) (err error) {
	for left := slices.Clone(p.found.parts); err == nil; {
		before := len(left)
		left = slices.DeleteFunc(left, func(id string) bool {
			removed := p.o.Engine.RemoveImage(ctx, id)
			if removed != nil && !errdefs.IsFailedPrecondition(removed) {
				err = removed
			}
			return removed == nil
		})
		if len(left) == before || len(left) == 0 {
			break
		}
	}
	return err
}

func (p *Purge) removeLogs(context.Context) error {
	var errs []error
	for _, dir := range p.directories() {
		if inside(p.o.Logs, dir) && !inside(p.o.Paths.DataDir, dir) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	if !inside(p.o.Paths.DataDir, p.o.Logs) {
		_ = os.Remove(p.o.Logs) // it stays if it has anything else
	}
	return errors.Join(errs...)
}

// removeFiles removes everything from the data directory but the records, the mark of the purge and the runtime directory with the lock.
func (p *Purge) removeFiles(context.Context) error {
	return p.removeEntries(func(name string) bool {
		return !strings.HasPrefix(name, filepath.Base(p.o.Paths.Database)) && name != "instance"
	})
}

func (p *Purge) removeRecords(context.Context) error {
	return p.removeEntries(func(string) bool { return true })
}

func (p *Purge) removeEntries(which func(name string) bool) error {
	entries, err := os.ReadDir(p.o.Paths.DataDir)
	errs := []error{err}
	for _, e := range entries {
		path := filepath.Join(p.o.Paths.DataDir, e.Name())
		if which(e.Name()) && path != purging(p.o.Paths.DataDir) && !inside(path, p.o.Paths.RunDir) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// end removes the mark, then the runtime directory with the lock, then the empty data directory. From the mark's removal on, another agboxd
// may start afresh as soon as the lock is gone: its files stay.
func (p *Purge) end(context.Context) error {
	err := errors.Join(disk.Remove(purging(p.o.Paths.DataDir)), disk.Remove(p.o.Paths.Socket), disk.Remove(p.o.Paths.Lock))
	_ = errors.Join(os.Remove(p.o.Paths.RunDir), os.Remove(p.o.Paths.DataDir)) // each stays if it has anything else or is a mount point
	return err
}
