package recordfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// isAgentFile tells the files of agents from others.
var isAgentFile = regexp.MustCompile(`^[0-9a-f]{32}$`)

// CatchUp finds the files that are not what src has: of agents from before there were such files, of changes that a crash kept
// from them, and those that a restore has made wrong. It rewrites them until ctx ends; Run does the rest. The file of a removed
// agent is removed; one of an agent that src never had, or that can't be read, gets another name, and nothing reads it again. It
// is for the start: before anything is handed over. Errors: the directory can't be listed, or src not be read.
func (d *Agents) CatchUp(ctx context.Context, src AgentSource) error {
	known := map[string]bool{}
	for _, id := range src.AgentIDs() {
		known[AgentFileName(id)] = true
		if err := d.compare(ctx, src, id); err != nil {
			return fmt.Errorf("catch up with agent %s: %w", id, err)
		}
	}
	if err := d.sortOut(ctx, src, known); err != nil {
		return fmt.Errorf("look through the records of agents: %w", err)
	}
	for range 2 { // what is rewritten is then synced
		if ctx.Err() != nil {
			break
		}
		d.flush(ctx, src, time.Now())
	}
	return nil
}

// compare marks the file of an agent as behind unless it ends with what src has.
func (d *Agents) compare(ctx context.Context, src AgentSource, id string) error {
	mark, err := src.AgentMark(ctx, id)
	if err != nil {
		return err
	}
	dirfd, err := d.open()
	if err != nil {
		d.after(d.file(id), err)
		return nil
	}
	defer unix.Close(dirfd)
	a := d.file(id)
	a.mu.Lock()
	err = a.learn(dirfd)
	a.behind = a.behind || err != nil || a.mark != mark
	behind := a.behind
	a.mu.Unlock()
	if behind {
		d.after(a, err)
	}
	return nil
}

// sortOut looks at the files that are of no agent on record.
func (d *Agents) sortOut(ctx context.Context, src AgentSource, known map[string]bool) error {
	entries, err := os.ReadDir(d.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if rest, temp := strings.CutSuffix(name, tempSuffix); temp && isAgentFile.MatchString(rest) {
			if err := os.Remove(filepath.Join(d.root, name)); err != nil && !isGone(err) {
				return err
			}
			continue
		}
		if !isAgentFile.MatchString(name) || known[name] {
			continue
		}
		if err := d.sortOne(ctx, src, filepath.Join(d.root, name)); err != nil {
			return err
		}
	}
	return nil
}

func (d *Agents) sortOne(ctx context.Context, src AgentSource, path string) error {
	if f, ok := findAgent(path); ok {
		removed, err := src.AgentReserved(ctx, f.ID)
		if err != nil {
			return err
		}
		if removed {
			d.AgentGone(&storev1.RemovedAgent{AgentId: f.ID})
			return nil
		}
	}
	aside, err := setAside(path, time.Now())
	if err != nil {
		return err
	}
	d.log.Warn("a file of an agent that is not on record is set aside", "path", path, "kept_as", aside)
	return nil
}

// maxAsides of one second: more are no accident.
const maxAsides = 100

// setAside gives a file another name, and overwrites nothing.
func setAside(path string, now time.Time) (aside string, err error) {
	base := path + ".unknown-" + now.UTC().Format("20060102T150405Z")
	aside = base
	for n := 1; n <= maxAsides; n++ {
		err = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, aside, unix.RENAME_NOREPLACE)
		if !errors.Is(err, fs.ErrExist) {
			return aside, err
		}
		aside = fmt.Sprintf("%s-%d", base, n)
	}
	return "", err
}
