package recordfile

import (
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// removedLog appends to the file that names the agents that are no more.
type removedLog struct {
	mu    sync.Mutex // held across the writes
	late  []*storev1.RemovedAgent
	known bool
	size  int64
	dirty bool
}

func (l *removedLog) add(r *storev1.RemovedAgent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = append(l.late, r)
}

// write appends who is not named yet, behind what is good.
func (l *removedLog) write(dirfd int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.late) > 0 {
		payload, err := proto.Marshal(l.late[0])
		if err != nil {
			return fmt.Errorf("encode: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		b, err := encodeFrame(kindRemoved, frame{version, payload})
		if err != nil {
			return err
		}
		if err := l.append(dirfd, b); err != nil {
			return err
		}
		l.late = l.late[1:]
	}
	return nil
}

func (l *removedLog) append(dirfd int, b []byte) error {
	f, size, err := openFile(dirfd, removedName, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return err
	}
	defer f.Close()
	if !l.known || size != l.size {
		good, err := scan(section(f, 0, size), size, kindRemoved, func(int64, frame) error { return nil })
		if errdefs.IsDataLoss(err) { // torn
			err = f.Truncate(good)
		}
		if err != nil {
			return err
		}
		l.size = good
	}
	_, err = f.WriteAt(b, l.size)
	if err != nil {
		l.known = false
		return errors.Join(err, f.Truncate(l.size))
	}
	l.known, l.dirty = true, true
	l.size += int64(len(b))
	return nil
}

// sync makes durable what was written.
func (l *removedLog) sync(dirfd int) error {
	l.mu.Lock()
	was := l.dirty
	l.dirty = false
	l.mu.Unlock()
	if !was {
		return nil
	}
	f, _, err := openFile(dirfd, removedName, unix.O_RDONLY)
	if err == nil {
		defer f.Close()
		err = f.Sync()
	}
	if err != nil {
		l.mu.Lock()
		l.dirty = true
		l.mu.Unlock()
	}
	return err
}
