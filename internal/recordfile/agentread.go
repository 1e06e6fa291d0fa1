package recordfile

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// FoundAgent is the file of one agent.
type FoundAgent struct {
	ID, Path string
	// Torn: the newest change, or what comes behind a damage, is missing. A Problem tells of it, too.
	Torn bool
	good int64 // where the last whole change ends
}

// ReadAgents reads the files of all agents, in the order of their names, and who was removed. One that can't be read, or is in the
// wrong place, is a problem and stops nothing; so is what is torn, and what comes before counts. A directory that is missing holds
// none. Nobody may write meanwhile. Errors: the directory can't be listed.
func ReadAgents(root string) (found []FoundAgent, removed []*storev1.RemovedAgent, problems []Problem, err error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, nil
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("list the records of agents: %w: %w", err, errdefs.ErrUnavailable)
	}
	var r reader
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		switch {
		case e.Name() == removedName:
			removed = r.removed(path)
		case isAgentFile.MatchString(e.Name()):
			if f, ok := r.agent(path); ok {
				found = append(found, f)
			}
		}
	}
	return found, removed, r.problems, nil
}

// findAgent is what ReadAgents finds in one file.
func findAgent(path string) (FoundAgent, bool) { return (&reader{}).agent(path) }

func (r *reader) agent(path string) (found FoundAgent, ok bool) {
	found.Path = path
	err := withFile(path, func(f *os.File, size int64) error {
		h, good, err := scanAgent(bufio.NewReaderSize(f, scanBuffer), size, func(*storev1.AgentChange) error { return nil })
		found.ID, found.good, found.Torn = h.id, good, err != nil
		return err
	})
	if err == nil && found.good == 0 {
		err = fmt.Errorf("it is empty: %w", errdefs.ErrDataLoss)
	}
	if found.good > 0 && AgentFileName(found.ID) != filepath.Base(path) {
		found.good, err = 0, fmt.Errorf("it is of agent %s, which has another place: %w", found.ID, errdefs.ErrDataLoss)
	}
	if err != nil {
		r.problem(path, err)
	}
	return found, found.good > 0
}

func (r *reader) removed(path string) (list []*storev1.RemovedAgent) {
	err := withFile(path, func(f *os.File, size int64) error {
		_, err := scan(bufio.NewReaderSize(f, scanBuffer), size, kindRemoved, func(_ int64, fr frame) error {
			var a storev1.RemovedAgent
			if fr.newer() {
				return errNewer(fr.version)
			}
			if err := proto.Unmarshal(fr.payload, &a); err != nil {
				return fmt.Errorf("decode: %w: %w", err, errdefs.ErrDataLoss)
			}
			list = append(list, &a)
			return nil
		})
		return err
	})
	if err != nil {
		r.problem(path, err)
	}
	return list
}

// Replay calls fn with the parts of all whole changes, in order: together they make the agent. Errors: fn's; ErrDataLoss when the
// file has changed since it was found; ErrUnavailable.
func (f FoundAgent) Replay(fn func(*storev1.AgentChange) error) error {
	var failed error
	err := withFile(f.Path, func(file *os.File, _ int64) error {
		_, good, err := scanAgent(bufio.NewReaderSize(section(file, 0, f.good), scanBuffer), f.good, func(c *storev1.AgentChange) error {
			failed = fn(c)
			return failed
		})
		if err == nil && good != f.good {
			err = errShrunk
		}
		return err
	})
	if failed != nil || err == nil {
		return failed
	}
	return fmt.Errorf("read %s again: %w", f.Path, err)
}

// withFile opens a regular file and no link.
func withFile(path string, fn func(f *os.File, size int64) error) error {
	dirfd, err := openDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unix.Close(dirfd)
	f, size, err := openFile(dirfd, filepath.Base(path), unix.O_RDONLY)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		err = fmt.Errorf("it is no regular file: %w", errdefs.ErrDataLoss)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return fn(f, size)
}
