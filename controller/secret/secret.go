// Package secret keeps the secrets of sandboxes as the files that they come from.
package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/internal/wait"
)

// Files are the secrets of sandboxes as PID 1 finds them.
type Files interface {
	PutSecret(sandboxID, name string, s execjournal.Secret) error
	Secret(sandboxID, name string) (execjournal.Secret, error)
	KeepSecrets(sandboxID string, names ...string) error
	SecretProblems(sandboxID string) []string
}

// Options are the dependencies of a Keeper. All are required.
type Options struct {
	Files Files
	// Refuses returns why a sandbox may not have the file at a path without symbolic links, as the rest of a sentence, or "".
	Refuses func(path string) string
	// Watch wakes Run when sources may have changed; nil: it looks at intervals only.
	Watch  Watch
	Logger *slog.Logger
}

// Watch is *hostfiles.DirWatch.
type Watch interface {
	Set(dirs []string)
	Wait(ctx context.Context, d time.Duration, wake <-chan struct{})
}

// timer is a Watch of nothing.
type timer struct{}

func (timer) Set([]string) {}

func (timer) Wait(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	after := time.NewTimer(d)
	defer after.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-after.C:
	}
}

const (
	// scanEvery is the time between two looks at the sources. inotify shortens it where a name in the directory of a source, or of the file
	// that it leads to, gets another file; this is for what changes elsewhere on the way to it.
	scanEvery = 1500 * time.Millisecond
	// never is how long a Keeper without any secret waits for one.
	never = 1 << 62
	// scanPause bounds the scans that a busy directory causes.
	scanPause = 50 * time.Millisecond
)

// Keeper delivers secrets. Its memory is derived: after a restart each source is read once, and compared with what is delivered.
type Keeper struct {
	o    Options
	wake chan struct{} // has a value when Want has changed something

	mu sync.Mutex
	of map[string]*sandbox // live sandboxes
}

// sandbox is the state of one sandbox. The Keeper's mu guards wanted and broken; work is held during a delivery and guards the rest.
type sandbox struct {
	wanted []*agboxv1.SecretSpec
	broken map[string]string // why a source can't be read, by name

	work sync.Mutex
	seen map[string]source // what is delivered, by name
	kept []*agboxv1.SecretSpec
	tidy bool // no other secrets than kept are delivered
}

// source is one version of the file of a secret.
type source struct {
	path, target string
	id           hostfiles.FileID
}

// New returns a Keeper.
func New(o Options) *Keeper {
	if o.Watch == nil {
		o.Watch = timer{}
	}
	return &Keeper{o: o, wake: make(chan struct{}, 1), of: map[string]*sandbox{}}
}

// Want sets the secrets of a live sandbox. It does no I/O.
func (k *Keeper) Want(sandboxID string, spec *agboxv1.CreateSpec) {
	var wanted []*agboxv1.SecretSpec
	for _, s := range spec.GetSecrets() {
		if s.GetTarget() != "" {
			wanted = append(wanted, s)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.of[sandboxID]
	if s != nil && slices.EqualFunc(s.wanted, wanted, same) {
		return
	}
	if s == nil {
		s = &sandbox{broken: map[string]string{}, seen: map[string]source{}}
		k.of[sandboxID] = s
	}
	s.wanted = wanted
	select {
	case k.wake <- struct{}{}:
	default: // it is awake
	}
}

// Forget ends the delivery to a sandbox that is being removed.
func (k *Keeper) Forget(sandboxID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.of, sandboxID)
}

func same(a, b *agboxv1.SecretSpec) bool {
	return a.GetName() == b.GetName() && a.GetFile() == b.GetFile() && a.GetTarget() == b.GetTarget()
}

// Deliver brings the secrets of a sandbox up to date. A source that can't be read leaves the value that was delivered last. Errors:
// ErrFailedPrecondition for such a source without an earlier value; those of Files, such as not found before the sandbox's directories
// exist.
func (k *Keeper) Deliver(sandboxID string) error {
	k.mu.Lock()
	s := k.of[sandboxID]
	k.mu.Unlock()
	if s == nil {
		return nil
	}
	s.work.Lock()
	defer s.work.Unlock()
	k.mu.Lock()
	wanted := s.wanted
	k.mu.Unlock()
	var errs []error
	for _, one := range wanted {
		errs = append(errs, k.deliver(sandboxID, s, one))
	}
	if !s.tidy || !slices.EqualFunc(s.kept, wanted, same) {
		err := k.keepOnly(sandboxID, s, wanted)
		s.kept, s.tidy = wanted, err == nil
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// keepOnly withdraws all other secrets.
func (k *Keeper) keepOnly(sandboxID string, s *sandbox, wanted []*agboxv1.SecretSpec) error {
	names := map[string]bool{}
	for _, one := range wanted {
		names[one.GetName()] = true
	}
	maps.DeleteFunc(s.seen, func(name string, _ source) bool { return !names[name] })
	k.mu.Lock()
	maps.DeleteFunc(s.broken, func(name, _ string) bool { return !names[name] })
	k.mu.Unlock()
	return k.o.Files.KeepSecrets(sandboxID, slices.Collect(maps.Keys(names))...)
}

// deliver delivers one secret if its source has changed.
func (k *Keeper) deliver(sandboxID string, s *sandbox, one *agboxv1.SecretSpec) error {
	name, now := one.GetName(), source{path: one.GetFile(), target: one.GetTarget()}
	var err error
	if now.id, err = hostfiles.Identify(now.path); err == nil && s.seen[name] == now {
		return nil
	}
	delete(s.seen, name)
	had, err := k.o.Files.Secret(sandboxID, name)
	first := errdefs.IsNotFound(err)
	value, id, why := hostfiles.ReadSecret(now.path, k.o.Refuses)
	k.note(sandboxID, s, name, now.path, why)
	switch {
	case why != "" && first:
		return fmt.Errorf("secret %s: %q %s: %w", name, now.path, why, errdefs.ErrFailedPrecondition)
	case why != "":
		value = had.Value
	}
	if first || err != nil || had.Target != now.target || !bytes.Equal(had.Value, value) {
		if err := k.o.Files.PutSecret(sandboxID, name, execjournal.Secret{Target: now.target, Value: value}); err != nil {
			return err
		}
		k.o.Logger.Info("secret delivered", "sandbox_id", sandboxID, "secret", name, "first", first)
	}
	if now.id = id; why == "" && id.Settled(time.Now()) {
		s.seen[name] = now
	}
	return nil
}

// note records whether a source can be read.
func (k *Keeper) note(sandboxID string, s *sandbox, name, path, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch was := s.broken[name]; {
	case why == "":
		delete(s.broken, name)
	case was != why:
		s.broken[name] = why
		k.o.Logger.Warn("the file of a secret can't be read", "sandbox_id", sandboxID, "secret", name, "path", path, "reason", why)
	}
}

// Problems returns one sentence for each secret that is not as its file.
func (k *Keeper) Problems(sandboxID string) (problems []string) {
	k.mu.Lock()
	if s := k.of[sandboxID]; s != nil {
		for _, one := range s.wanted {
			if why := s.broken[one.GetName()]; why != "" {
				problems = append(problems, fmt.Sprintf("secret %s: %q %s; the sandbox keeps the last value, if it had one", one.GetName(), one.GetFile(), why))
			}
		}
	}
	k.mu.Unlock()
	return append(problems, k.o.Files.SecretProblems(sandboxID)...)
}

// Unreadable returns the number of secrets whose files can't be read.
func (k *Keeper) Unreadable() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.of {
		n += len(s.broken)
	}
	return n
}

// Run keeps all secrets up to date until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		dirs := k.scan(ctx)
		if k.o.Watch.Set(dirs); len(dirs) > 0 {
			k.o.Watch.Wait(ctx, scanEvery, k.wake)
		} else {
			timer{}.Wait(ctx, never, k.wake)
		}
		_ = wait.For(ctx, scanPause) // the loop's condition has its error
	}
}

// scan delivers to all sandboxes, and returns the directories in which a change may concern them.
func (k *Keeper) scan(ctx context.Context) (dirs []string) {
	k.mu.Lock()
	ids := slices.Collect(maps.Keys(k.of))
	paths := map[string]bool{}
	for _, s := range k.of {
		for _, one := range s.wanted {
			paths[one.GetFile()] = true
		}
	}
	k.mu.Unlock()
	for path := range paths {
		dirs = append(dirs, filepath.Dir(path))
		if resolved, err := filepath.EvalSymlinks(path); err == nil && resolved != path {
			dirs = append(dirs, filepath.Dir(resolved))
		}
	}
	for _, id := range ids {
		if ctx.Err() != nil {
			break
		}
		if err := k.Deliver(id); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) {
			k.o.Logger.Warn("secrets are not delivered; trying again", "sandbox_id", id, "err", err)
		}
	}
	return dirs
}
