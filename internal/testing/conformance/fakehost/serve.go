package fakehost

import (
	"errors"
	"os"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// serve carries out requests until its container is dead.
func (b *box) serve() error {
	defer b.work.Wait()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer closeWatcher(w)
	if err := w.Add(b.ctl); err != nil {
		return err
	}
	for {
		if err := b.scan(); err != nil {
			return err
		}
		select {
		case <-b.quit:
			return nil
		case <-w.Events:
		case <-b.thawed:
		case err := <-w.Errors:
			if !b.isGone() {
				return err
			}
			<-b.quit
			return nil
		}
	}
}

// isGone reports whether the requests' directory is no more: its container was removed, which we may hear of a moment later.
// A directory that goes while its watch is looked at makes errors of it.
func (b *box) isGone() bool {
	_, err := os.Stat(b.ctl)
	return errors.Is(err, os.ErrNotExist)
}

// closeWatcher reads on meanwhile: the library may hold the lock that Close wants while it waits for a reader.
func closeWatcher(w *fsnotify.Watcher) {
	var drained sync.WaitGroup
	drained.Go(func() {
		for range w.Events {
		}
	})
	drained.Go(func() {
		for range w.Errors {
		}
	})
	_ = w.Close()
	drained.Wait()
}

func (b *box) scan() error {
	if b.isFrozen() {
		return nil
	}
	entries, err := os.ReadDir(b.ctl)
	if errors.Is(err, os.ErrNotExist) {
		return nil // its container is being removed
	}
	for _, e := range entries {
		if e.Name() == execjournal.ReleaseName {
			b.release()
			continue
		}
		if id, ok := execjournal.InboxID(e.Name()); ok {
			b.lookInto(id)
			continue
		}
		switch id, cancel, ok := execjournal.RequestID(e.Name()); {
		case !ok:
		case cancel:
			b.cancel(id)
		default:
			err = errors.Join(err, b.begin(id))
		}
	}
	return err
}

// lookInto has a command's inbox looked into.
func (b *box) lookInto(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.running[id]; r != nil && r.inbox != nil {
		r.inbox.look()
	}
}
