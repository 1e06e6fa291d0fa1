package recordfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// AgentSource is the database: *store.Store.
type AgentSource interface {
	AgentIDs() []string
	AgentReserved(ctx context.Context, id string) (bool, error)
	AgentMark(ctx context.Context, id string) (uint64, error)
	DumpAgent(ctx context.Context, id string, fn func(*storev1.AgentChange) error) error
}

// errAgain: changes came in the way.
var errAgain = fmt.Errorf("changes could not be written meanwhile: %w", errdefs.ErrAborted)

// rewrite puts what the database holds of an agent in the place of its file. The long part, with the sync, is done without the file's
// lock: what is handed over meanwhile is appended to the old file and copied at the end.
func (d *Agents) rewrite(ctx context.Context, src AgentSource, a *agentFile) error {
	dirfd, err := d.open()
	if err != nil {
		return err
	}
	defer unix.Close(dirfd)
	if !a.begin() {
		return nil
	}
	defer a.end()
	temp, err := createTemp(dirfd, a.name+tempSuffix)
	if err != nil {
		return err
	}
	defer temp.Close()
	size, mark, err := dump(ctx, src, a.id, temp)
	if err == nil && mark != 0 {
		err = a.swap(dirfd, temp, size, mark)
	}
	if err == nil && mark == 0 {
		a.settle()
	}
	if err != nil || mark == 0 {
		return errors.Join(err, remove(dirfd, a.name+tempSuffix))
	}
	return nil
}

// settle leaves the file of an agent that is not on record any more to AgentGone, which is on its way.
func (a *agentFile) settle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.behind, a.base = false, a.size
}

func (a *agentFile) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return false
	}
	a.rewrite = &rewriting{}
	return true
}

func (a *agentFile) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rewrite = nil
}

// dump writes and syncs what src has of an agent.
func dump(ctx context.Context, src AgentSource, id string, to *os.File) (size int64, mark uint64, err error) {
	var buffer []byte
	err = src.DumpAgent(ctx, id, func(c *storev1.AgentChange) error {
		mark = c.GetAfter()
		var err error
		buffer, err = agentParts(c, buffer, func(frame []byte) error {
			n, err := to.WriteAt(frame, size)
			size += int64(n)
			return err
		})
		return err
	})
	if err != nil {
		return size, mark, fmt.Errorf("rewrite: %w", err)
	}
	return size, mark, to.Sync()
}

// swap puts temp, which is the agent as mark names it, in the place of the file, with what was appended to that since.
func (a *agentFile) swap(dirfd int, temp *os.File, size int64, mark uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return remove(dirfd, a.name+tempSuffix)
	}
	if a.rewrite.failed {
		return errAgain
	}
	base := size
	if from := a.rewrite.after(mark, a.size); from < a.size {
		old, _, err := openFile(dirfd, a.name, unix.O_RDONLY)
		if err != nil {
			return err
		}
		defer old.Close()
		n, err := io.Copy(io.NewOffsetWriter(temp, size), section(old, from, a.size))
		if err != nil {
			return err
		}
		if n != a.size-from {
			return errShrunk
		}
		size, mark = size+n, a.mark
	}
	if err := rename(dirfd, a.name+tempSuffix, a.name); err != nil {
		return err
	}
	a.size, a.base, a.mark, a.known, a.behind = size, base, mark, true, false
	a.dirty = true
	return nil
}

// after is where the changes begin that followed on mark; size when none has come yet.
func (w *rewriting) after(mark uint64, size int64) int64 {
	for i := len(w.changes) - 1; i >= 0; i-- {
		if w.changes[i].after == mark {
			return w.changes[i].end
		}
	}
	if len(w.changes) > 0 && w.mark == mark {
		return w.start
	}
	return size
}
