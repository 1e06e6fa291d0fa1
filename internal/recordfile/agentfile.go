package recordfile

import (
	"errors"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// agentSlack is how much more than twice what counts the file of an agent may hold.
const agentSlack = 1 << 20

// agentFile is the file of one agent.
type agentFile struct {
	id, name string

	// mu orders the writes to the file, and is held across them as that of a box is.
	mu   sync.Mutex
	gone bool
	// known: size and mark are those of the file. Until then it is as another process left it.
	known bool
	size  int64
	mark  uint64 // after the last change in it
	base  int64  // bytes of the present form of what counts, when that was last known
	// behind: a change is missing, so what follows would mean nothing. Only rewriting it helps.
	behind  bool
	dirty   bool // not synced
	rewrite *rewriting
}

// rewriting is what happens to a file while it is rewritten.
type rewriting struct {
	mark    uint64 // before the first of the changes
	start   int64  // where that begins
	changes []written
	failed  bool // one could not be written
}

// written is a change: what it made of the agent, and where it ends.
type written struct {
	after uint64
	end   int64
}

// change appends to the file what follows on what is in it. The caller holds the lock.
func (a *agentFile) change(dirfd int, c *storev1.AgentChange, buffer []byte) ([]byte, error) {
	if a.gone {
		return buffer, nil
	}
	if err := a.learn(dirfd); err != nil {
		a.behind = true
		return buffer, err
	}
	if a.rewrite == nil {
		switch {
		case c.GetAfter() == a.mark && c.GetBefore() != a.mark:
			return buffer, nil // it was there when the file was rewritten
		case c.GetBefore() != a.mark:
			a.behind = true
		}
		if a.behind {
			return buffer, nil
		}
	}
	end, buffer, err := a.write(dirfd, c, buffer)
	if err != nil {
		a.behind = true
		if a.rewrite != nil {
			a.rewrite.failed = true
		}
		return buffer, err
	}
	if a.rewrite != nil {
		a.behind = a.behind || c.GetBefore() != a.mark
		a.rewrite.note(c, a.size, end)
	}
	a.size, a.mark, a.dirty = end, c.GetAfter(), true
	return buffer, nil
}

func (w *rewriting) note(c *storev1.AgentChange, start, end int64) {
	if len(w.changes) == 0 {
		w.mark, w.start = c.GetBefore(), start
	}
	w.changes = append(w.changes, written{c.GetAfter(), end})
}

// write puts the parts of a change at the end of the file, all or none.
func (a *agentFile) write(dirfd int, c *storev1.AgentChange, buffer []byte) (end int64, _ []byte, err error) {
	f, size, err := openFile(dirfd, a.name, unix.O_WRONLY|unix.O_CREAT)
	if err != nil {
		return 0, buffer, err
	}
	defer f.Close()
	if size != a.size {
		a.known = false
		return 0, buffer, errMoved
	}
	end = size
	buffer, err = agentParts(c, buffer, func(frame []byte) error {
		n, err := f.WriteAt(frame, end)
		end += int64(n)
		return err
	})
	if err != nil {
		a.known = f.Truncate(a.size) == nil
	}
	return end, buffer, err
}

// learn looks at the end of a file that another process has left.
func (a *agentFile) learn(dirfd int) error {
	if a.known {
		return nil
	}
	f, size, err := openFile(dirfd, a.name, unix.O_RDONLY)
	if isGone(err) {
		a.size, a.mark, a.known = 0, 0, true
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	last, err := lastChange(f, size, a.id)
	switch {
	case err == nil:
		a.mark = last.GetAfter()
	case errdefs.IsDataLoss(err), errdefs.IsFailedPrecondition(err):
		a.behind = true // it is left as it is until another one takes its place
	default:
		return err
	}
	a.size, a.known, a.dirty = size, true, true // nobody knows whether it was synced
	return nil
}

// full reports whether most of the file counts no more.
func (a *agentFile) full(slack int64) bool { return a.size > 2*a.base+slack }

// remove removes the file.
func (a *agentFile) remove(dirfd int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = true
	return errors.Join(remove(dirfd, a.name), remove(dirfd, a.name+tempSuffix))
}
