package inspect

import (
	"context"
	"fmt"
	"path/filepath"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// garbageDirs judges the directories of sandboxes on the host. It lists them before it reads any record: a directory is created after its
// sandbox was accepted, so the sandbox of each listed directory is known by then. It leaves out directories used by a container that is not
// ours: another daemon knows that sandbox.
func (l *Lister) garbageDirs(ctx context.Context) ([]*agboxv1.GarbageItem, error) {
	dirs, err := l.Dirs()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, d := range dirs {
		ids = append(ids, d.SandboxID)
	}
	owners, foreign, err := l.owners(ctx, ids...)
	if err != nil {
		return nil, err
	}
	var garbage []*agboxv1.GarbageItem
	for _, d := range dirs {
		id := d.SandboxID
		if id == "" {
			id = owners[filepath.Base(d.Path)]
		}
		reason, unknown, err := l.judgeDir(ctx, id)
		if err != nil {
			return nil, err
		}
		if reason != "" && !foreign[id] {
			garbage = append(garbage, &agboxv1.GarbageItem{
				Kind: kindDirectory, Id: d.Path, Name: filepath.Base(d.Path), SandboxId: id, Reason: reason, Unknown: unknown,
			})
		}
	}
	return garbage, nil
}

// judgeDir returns why the directory of a sandbox is garbage; empty: it is not.
func (l *Lister) judgeDir(ctx context.Context, id string) (reason string, unknown bool, err error) {
	if id == "" {
		return "no sandbox that is known has it", true, nil
	}
	standing, err := l.standing(ctx, id)
	if err != nil {
		return "", false, err
	}
	reason, unknown = leftBehind(standing)
	return reason, unknown, nil
}

// stillGarbageDir judges the directory again, and checks that no container of any daemon has it mounted.
func (l *Lister) stillGarbageDir(ctx context.Context, g *agboxv1.GarbageItem) error {
	if g.GetSandboxId() == "" {
		owners, _, err := l.owners(ctx)
		if err == nil && owners[g.GetName()] != "" {
			err = errKept
		}
		return err
	}
	reason, unknown, err := l.judgeDir(ctx, g.GetSandboxId())
	if err != nil {
		return err
	}
	if reason == "" || unknown != g.GetUnknown() {
		return errKept
	}
	containers, err := l.Containers(ctx, map[string]string{naming.SandboxID: g.GetSandboxId()})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	if len(containers) > 0 {
		return fmt.Errorf("container %s of its sandbox is still there", containers[0].Name)
	}
	return nil
}

// owners returns the sandboxes with the given IDs, those that containers of all daemons on this engine name, and those on record, deleted ones
// included: by the names of their run directories. foreign has those with a container that is not ours.
func (l *Lister) owners(ctx context.Context, ids ...string) (owners map[string]string, foreign map[string]bool, err error) {
	containers, err := l.Containers(ctx, map[string]string{naming.SandboxID: ""})
	if err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	owners, foreign = map[string]string{}, map[string]bool{}
	for _, ct := range containers {
		id := ct.Labels[naming.SandboxID]
		ids = append(ids, id)
		if !l.Objects.Has(ct.Labels, ct.ID) {
			foreign[id] = true
		}
	}
	// A read of the file waits until commits are in memory.
	if _, err := l.Records.Reserved(ctx, ""); err != nil {
		return nil, nil, err
	}
	list, err := l.Records.List(ctx, store.Filter{IncludeDeleted: true})
	if err != nil {
		return nil, nil, err
	}
	for _, sb := range list {
		ids = append(ids, sb.ID)
	}
	for _, id := range ids {
		if id != "" {
			owners[execjournal.RunName(id)] = id
		}
	}
	return owners, foreign, nil
}
