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
	foreign, ids, err := l.usersOfDirs(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range dirs {
		ids = append(ids, d.SandboxID)
	}
	known, err := l.knownIDs(ctx, true)
	if err != nil {
		return nil, err
	}
	owners := byRunName(append(ids, known...))
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
		return l.stillNobodys(ctx, g.GetName())
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

// stillNobodys judges again a directory whose sandbox is unknown.
func (l *Lister) stillNobodys(ctx context.Context, runName string) error {
	_, ids, err := l.usersOfDirs(ctx)
	if err != nil {
		return err
	}
	known, err := l.knownIDs(ctx, false)
	if err != nil {
		return err
	}
	if owner := byRunName(append(ids, known...))[runName]; owner != "" {
		return errKept
	}
	return nil
}

// usersOfDirs returns the sandboxes that containers of all daemons on this engine name, and which of them have a container that is not
// ours.
func (l *Lister) usersOfDirs(ctx context.Context) (foreign map[string]bool, ids []string, err error) {
	containers, err := l.Containers(ctx, map[string]string{naming.SandboxID: ""})
	if err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	foreign = map[string]bool{}
	for _, ct := range containers {
		id := ct.Labels[naming.SandboxID]
		ids = append(ids, id)
		if !l.Objects.Has(ct.Labels) {
			foreign[id] = true
		}
	}
	return foreign, ids, nil
}

// knownIDs returns all sandboxes in memory, including damaged ones, and if deleted is set the deleted ones that are not purged.
func (l *Lister) knownIDs(ctx context.Context, deleted bool) (ids []string, err error) {
	// A read of the file waits until commits are in memory.
	if _, err := l.Records.Reserved(ctx, ""); err != nil {
		return nil, err
	}
	list, err := l.Records.List(ctx, store.Filter{IncludeDeleted: deleted})
	if err != nil {
		return nil, err
	}
	for _, sb := range list {
		ids = append(ids, sb.ID)
	}
	return ids, nil
}

func byRunName(ids []string) map[string]string {
	owners := map[string]string{}
	for _, id := range ids {
		if id != "" {
			owners[execjournal.RunName(id)] = id
		}
	}
	return owners
}
