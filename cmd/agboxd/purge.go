package main

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
	"github.com/spf13/cobra"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/host/disk"
	"github.com/agbox/agbox/internal/host/mountpolicy"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/store"
)

type purgeOptions struct {
	configFile                          string
	yes, dryRun, volumes, withoutEngine bool
}

func purgeCommand() *cobra.Command {
	var o purgeOptions
	cmd := &cobra.Command{
		Use: "purge", Short: "Remove everything that belongs to a data directory, and the directory; the daemon must not run",
		Long: "Remove all sandboxes, running or not, with their containers and networks, the volume that marks the engine, and all files: records,\n" +
			"logs, backups in the data directory, the runtime directory. It asks first: type the instance, or give --yes. --dry-run prints what would\n" +
			"be removed and what stays. Only objects whose labels name this data directory's instance are removed.\n\n" +
			"Named volumes stay, unless --volumes is given; then their content is lost. Images, the configuration file and backups in other\n" +
			"directories always stay. The purge may be killed at any moment: repeat it. agboxd does not start on a directory that is half removed.",
		Example: "  agboxd purge --dry-run\n  agboxd purge --volumes --yes",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runPurge(cmd, o) },
	}
	cmd.Flags().StringVar(&o.configFile, "config", "", configFlagHelp)
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would be removed; change nothing")
	cmd.Flags().BoolVar(&o.volumes, "volumes", false, "also remove named volumes with their content")
	cmd.Flags().BoolVar(&o.withoutEngine, "without-engine", false, "remove the files only; containers, networks and volumes stay where they are")
	return cmd
}

func runPurge(cmd *cobra.Command, o purgeOptions) error {
	cfg, _, paths, err := effective(cmd, o.configFile)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if !isDataDir(paths) {
		_, err := fmt.Fprintf(out, "nothing to purge: %s has no data of agboxd\n", paths.DataDir)
		return err
	}
	if err := checkRoots(cfg, paths); err != nil {
		return err
	}
	_, release, err := lockDatabase(cmd.Context(), paths)
	if err != nil {
		return err
	}
	defer release()
	p := &purge{paths: paths, logs: cfg.Artifacts.ExecOutputRoot, backups: cfg.Backup.Dir, volumes: o.volumes, out: out}
	if !o.withoutEngine {
		engine, err := dockerx.New(dockerx.Options{Host: cfg.Docker.Host})
		if err != nil {
			return &exitError{exitUsage, err}
		}
		defer func() { _ = engine.Close() }()
		p.engine = engine
	}
	if err := p.look(cmd.Context()); err != nil {
		return err
	}
	if o.dryRun {
		return p.show("would remove ")
	}
	if !o.yes {
		if err := p.confirm(cmd.Context(), cmd.InOrStdin()); err != nil {
			return err
		}
	}
	return p.run(cmd.Context())
}

// purging is the file that marks a data directory whose purge has begun. It has the instances, one per line, and is removed last.
func purging(dataDir string) string { return filepath.Join(dataDir, "purging") }

// checkPurging refuses to start agboxd on the rest of a data directory: it would take purged sandboxes for lost ones.
func checkPurging(dataDir string) error {
	if !exists(purging(dataDir)) {
		return nil
	}
	return &exitError{exitStore, fmt.Errorf("the purge of %s was interrupted: run \"agboxd purge\" again", dataDir)}
}

// isDataDir reports whether agboxd, or an interrupted purge, has left anything in the data directory.
func isDataDir(paths config.Paths) bool {
	return exists(paths.Database) || exists(filepath.Join(paths.DataDir, "instance")) || exists(purging(paths.DataDir))
}

// purgeEngine is the part of the engine that a purge uses.
type purgeEngine interface {
	ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error)
	ListNetworks(ctx context.Context, labels map[string]string) ([]dockerx.Network, error)
	ListVolumes(ctx context.Context, labels map[string]string) ([]dockerx.Volume, error)
	RemoveContainer(ctx context.Context, id string) error
	RemoveNetwork(ctx context.Context, id string) error
	RemoveVolume(ctx context.Context, name string) error
}

// purge removes a data directory and what belongs to it. Both locks of agboxd are held meanwhile. The process may be killed at any point.
type purge struct {
	paths         config.Paths
	logs, backups string
	volumes       bool
	engine        purgeEngine // nil: its objects stay
	out           io.Writer
	// after is called with the name of each completed step; nil: not called. For tests.
	after func(step string) error

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
}

func (o engineObjects) empty(volumes bool) bool {
	return len(o.containers)+len(o.networks)+len(o.marker) == 0 && (!volumes || len(o.volumes) == 0)
}

// look reads the instances and lists their objects. It changes nothing.
func (p *purge) look(ctx context.Context) error {
	text, err := os.ReadFile(purging(p.paths.DataDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.begun = err == nil
	instance, _, err := (recovery.Site{DataDir: p.paths.DataDir}).Instance()
	if err != nil {
		return err
	}
	inventory, err := readInventory(ctx, p.paths.Database)
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
	if p.engine == nil {
		return nil
	}
	if len(p.instances) == 0 && !p.begun {
		return fmt.Errorf("the instance of %s is not known, so its containers can't be found: --without-engine removes the files only", p.paths.DataDir)
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

func (p *purge) list(ctx context.Context) (o engineObjects, err error) {
	for _, id := range p.instances {
		ours := map[string]string{naming.Instance: id}
		containers, err := p.engine.ListContainers(ctx, ours)
		if err != nil {
			return o, err
		}
		networks, err := p.engine.ListNetworks(ctx, ours)
		if err != nil {
			return o, err
		}
		volumes, err := p.engine.ListVolumes(ctx, ours)
		if err != nil {
			return o, err
		}
		o.containers, o.networks = append(o.containers, containers...), append(o.networks, networks...)
		for _, v := range volumes {
			if v.Labels[naming.Marker] != "" {
				o.marker = append(o.marker, v.Name)
			} else {
				o.volumes = append(o.volumes, v.Name)
			}
		}
	}
	return o, nil
}

// show prints what is removed, each line after verb, and what stays.
func (p *purge) show(verb string) error {
	var lines []string
	for _, c := range p.found.containers {
		lines = append(lines, verb+"container "+c.Name)
	}
	for _, n := range p.found.networks {
		lines = append(lines, verb+"network "+n.Name)
	}
	if p.volumes {
		lines = append(lines, prefixed(verb+"volume ", p.found.volumes)...)
	}
	lines = append(lines, prefixed(verb+"volume ", p.found.marker)...)
	lines = append(lines, prefixed(verb+"", p.directories())...)
	if p.unread != nil {
		lines = append(lines, fmt.Sprintf("the database can't be read (%v): objects of former instances are not known, and logs outside of the data directory stay", p.unread))
	}
	if p.engine == nil {
		lines = append(lines, "containers, networks and volumes stay in the engine")
	}
	_, err := fmt.Fprintln(p.out, strings.Join(append(lines, p.staying()...), "\n"))
	return err
}

func prefixed(with string, all []string) (lines []string) {
	for _, one := range all {
		lines = append(lines, with+one)
	}
	return lines
}

// staying says what is kept.
func (p *purge) staying() (lines []string) {
	if !p.volumes {
		lines = prefixed("stays: volume ", p.found.volumes)
	}
	for _, path := range []string{p.backups, p.paths.ConfigFile} {
		if exists(path) && !inside(p.paths.DataDir, path) {
			lines = append(lines, "stays: "+path)
		}
	}
	return append(lines, "stays: images")
}

// directories are those that are removed with their content: logs outside of the data directory, the data directory, the runtime directory.
func (p *purge) directories() (all []string) {
	if !inside(p.paths.DataDir, p.logs) {
		for _, id := range p.sandboxes {
			if dir := filepath.Join(p.logs, id); exists(dir) { // other directories may be somebody else's
				all = append(all, dir)
			}
		}
	}
	all = append(all, p.paths.DataDir)
	if !inside(p.paths.DataDir, p.paths.RunDir) {
		all = append(all, p.paths.RunDir)
	}
	return all
}

// inside reports whether path is dir or in it.
func inside(dir, path string) bool {
	rel, err := filepath.Rel(mountpolicy.Resolve(dir), mountpolicy.Resolve(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// confirm asks for the instance. It returns when ctx ends; a blocked read ends with the process.
func (p *purge) confirm(ctx context.Context, in io.Reader) error {
	if err := p.show("removes "); err != nil {
		return err
	}
	word := "purge"
	if len(p.instances) > 0 {
		word = p.instances[0]
	}
	if _, err := fmt.Fprintf(p.out, "\nNothing of this can be brought back. Type %s to go on: ", word); err != nil {
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

func (p *purge) run(ctx context.Context) error {
	err := backup.RunSteps(ctx, p.after, []backup.Step{
		{Name: "begin", Do: p.begin}, {Name: "objects", Do: p.removeObjects}, {Name: "logs", Do: p.removeLogs}, {Name: "files", Do: p.removeFiles}, {Name: "records", Do: p.removeRecords}, {Name: "end", Do: p.end},
	})
	if err != nil {
		return fmt.Errorf("purge %s: %w; run it again", p.paths.DataDir, err)
	}
	_, err = fmt.Fprintln(p.out, strings.Join(append([]string{fmt.Sprintf("%s is purged", p.paths.DataDir)}, p.staying()...), "\n"))
	return err
}

func (p *purge) begin(context.Context) error {
	return disk.Replace(purging(p.paths.DataDir), []byte(strings.Join(p.instances, "\n")+"\n"), 0o600)
}

// purgeRounds bounds how often objects are listed again: the engine may complete the create of a daemon that was killed.
const purgeRounds = 5

// removeObjects removes objects until the engine lists none, the marker last.
func (p *purge) removeObjects(ctx context.Context) error {
	if p.engine == nil {
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
		if o.empty(p.volumes) {
			return nil
		}
	}
	return fmt.Errorf("the engine still lists objects of instance %s: %w", strings.Join(p.instances, ", "), errdefs.ErrUnavailable)
}

func (p *purge) removeFound(ctx context.Context) error {
	for _, c := range p.found.containers {
		if err := p.engine.RemoveContainer(ctx, c.ID); err != nil && !errdefs.IsAborted(err) { // another removal is in progress
			return err
		}
	}
	for _, n := range p.found.networks {
		if err := p.engine.RemoveNetwork(ctx, n.ID); err != nil {
			return err
		}
	}
	volumes := p.found.marker
	if p.volumes {
		volumes = slices.Concat(p.found.volumes, p.found.marker)
	}
	for _, name := range volumes {
		if err := p.engine.RemoveVolume(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (p *purge) removeLogs(context.Context) error {
	var errs []error
	for _, dir := range p.directories() {
		if inside(p.logs, dir) && !inside(p.paths.DataDir, dir) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	if !inside(p.paths.DataDir, p.logs) {
		_ = os.Remove(p.logs) // it stays if it has anything else
	}
	return errors.Join(errs...)
}

// removeFiles removes everything from the data directory but the records, the mark of the purge and the runtime directory with the lock.
func (p *purge) removeFiles(context.Context) error {
	return p.removeEntries(func(name string) bool {
		return !strings.HasPrefix(name, filepath.Base(p.paths.Database)) && name != "instance"
	})
}

func (p *purge) removeRecords(context.Context) error {
	return p.removeEntries(func(string) bool { return true })
}

func (p *purge) removeEntries(which func(name string) bool) error {
	entries, err := os.ReadDir(p.paths.DataDir)
	errs := []error{err}
	for _, e := range entries {
		path := filepath.Join(p.paths.DataDir, e.Name())
		if which(e.Name()) && path != purging(p.paths.DataDir) && !inside(path, p.paths.RunDir) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// end removes the mark, then the runtime directory with the lock, then the empty data directory. From the mark's removal on, another agboxd
// may start afresh as soon as the lock is gone: its files stay.
func (p *purge) end(context.Context) error {
	err := errors.Join(disk.Remove(purging(p.paths.DataDir)), disk.Remove(p.paths.Socket), disk.Remove(p.paths.Lock))
	_ = errors.Join(os.Remove(p.paths.RunDir), os.Remove(p.paths.DataDir)) // each stays if it has anything else or is a mount point
	return err
}
