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

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/inject"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// Store has the records of sandboxes.
type Store interface {
	LiveIDs() []string
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
}

// Files are the secrets of sandboxes as PID 1 finds them.
type Files interface {
	PutSecret(sandboxID, service, name string, s execjournal.Secret) error
	Secret(sandboxID, service, name string) (execjournal.Secret, error)
	HasSecret(sandboxID, service, name string) bool
	KeepSecrets(sandboxID, service string, names ...string) error
	SecretProblems(sandboxID string) []string
}

// Options are the dependencies of a Keeper. All are required.
type Options struct {
	Store Store
	Files Files
	// Authority returns the certificate of the authority that signs for hosts to whose requests of a sandbox headers are added, as PEM.
	Authority func(sandboxID string) ([]byte, error)
	// Trusted returns the certificates that programs of the host trust, as PEM, at most 1 MiB, for images that have none; empty: they are not known.
	Trusted func() []byte
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

// sandbox is the state of one sandbox. The Keeper's mu guards wanted, broken and unfit; services never change; work is held during a delivery and guards
// the rest.
type sandbox struct {
	services []string
	wanted   []secret
	broken   map[secret]string // why a source can't be read
	unfit    map[secret]string // why a value can't be added to requests

	work sync.Mutex
	seen map[secret]hostfiles.FileID // the source that is delivered
	kept []secret
	tidy bool // no other secrets than kept are delivered
	// authority is what deliverAuthority has delivered; the zero value: nothing that is known.
	authority execjournal.Secret
}

// secret is one file for one container of a sandbox; service "" is the primary.
type secret struct {
	service, name string
	// path is on the host. target is empty for a service, where file is the name in the directory of secrets.
	path, target, file string
}

func (s secret) String() string {
	if s.service != "" && s.service != execjournal.Injector {
		return fmt.Sprintf("secret %s of service %s", s.name, s.service)
	}
	return "secret " + s.name
}

// secretsOf returns the secrets that have a target, and those that are added to requests.
func secretsOf(spec *agboxv1.CreateSpec) (all []secret) {
	for _, s := range spec.GetSecrets() {
		if s.GetTarget() != "" {
			all = append(all, secret{name: s.GetName(), path: s.GetFile(), target: s.GetTarget(), file: s.GetName()})
		}
		if len(s.GetInject()) > 0 {
			all = append(all, secret{service: execjournal.Injector, name: s.GetName(), path: s.GetFile(), file: execjournal.InjectedName(s.GetName(), s.GetFile())})
		}
	}
	for _, svc := range slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()) {
		for _, s := range svc.GetSecrets() {
			if s.GetTarget() != "" {
				all = append(all, secret{service: svc.GetName(), name: s.GetName(), path: s.GetFile(), file: filepath.Base(s.GetTarget())})
			}
		}
	}
	return all
}

// New returns a Keeper.
func New(o Options) *Keeper {
	if o.Watch == nil {
		o.Watch = timer{}
	}
	return &Keeper{o: o, wake: make(chan struct{}, 1), of: map[string]*sandbox{}}
}

// Want sets the secrets of a live sandbox to those of its record. It does no I/O.
func (k *Keeper) Want(sb store.Sandbox) {
	wanted := wantedOf(sb)
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.of[sb.ID]
	switch {
	case s == nil && len(wanted) == 0: // it had none since the last scan
		return
	case s == nil:
		k.add(sb)
	case slices.Equal(s.wanted, wanted):
		return
	default:
		s.wanted = wanted
	}
	select {
	case k.wake <- struct{}{}:
	default: // it is awake
	}
}

// wantedOf returns the secrets that a sandbox should have: none once it is to be deleted.
func wantedOf(sb store.Sandbox) []secret {
	if sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE {
		return nil
	}
	return secretsOf(sb.Spec)
}

// add makes the Keeper know a sandbox. The caller holds mu.
func (k *Keeper) add(sb store.Sandbox) {
	s := &sandbox{
		services: []string{execjournal.Injector}, wanted: wantedOf(sb),
		broken: map[secret]string{}, unfit: map[secret]string{}, seen: map[secret]hostfiles.FileID{},
	}
	for _, svc := range slices.Concat(sb.Spec.GetRequiredServices(), sb.Spec.GetOptionalServices()) {
		s.services = append(s.services, svc.GetName())
	}
	k.of[sb.ID] = s
}

// follow makes the Keeper know exactly the live sandboxes: a pass over one that is as wanted may never come.
func (k *Keeper) follow(ctx context.Context) {
	live := map[string]bool{}
	for _, id := range k.o.Store.LiveIDs() {
		live[id] = true
		k.mu.Lock()
		known := k.of[id] != nil
		k.mu.Unlock()
		if known {
			continue
		}
		sb, err := k.o.Store.Sandbox(ctx, id)
		if err != nil {
			continue // deleted meanwhile, or damaged; the next scan tries again
		}
		k.mu.Lock()
		if k.of[id] == nil { // otherwise a pass came first, whose record may be newer
			k.add(sb)
		}
		k.mu.Unlock()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.of, func(id string, _ *sandbox) bool { return !live[id] })
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
	if slices.ContainsFunc(wanted, injected) {
		errs = append(errs, k.deliverAuthority(sandboxID, s))
	}
	if !s.tidy || !slices.Equal(s.kept, wanted) {
		err := k.keepOnly(sandboxID, s, wanted)
		s.kept, s.tidy = wanted, err == nil
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// keepOnly withdraws all other secrets.
func (k *Keeper) keepOnly(sandboxID string, s *sandbox, wanted []secret) error {
	files := map[string][]string{"": nil} // by service
	for _, service := range s.services {
		files[service] = nil
	}
	for _, one := range wanted {
		files[one.service] = append(files[one.service], one.file)
	}
	if slices.ContainsFunc(wanted, injected) {
		files[""] = append(files[""], execjournal.AuthoritySecret)
	} else {
		s.authority = execjournal.Secret{}
	}
	maps.DeleteFunc(s.seen, func(one secret, _ hostfiles.FileID) bool { return !slices.Contains(wanted, one) })
	k.mu.Lock()
	for _, of := range []map[secret]string{s.broken, s.unfit} {
		maps.DeleteFunc(of, func(one secret, _ string) bool { return !slices.Contains(wanted, one) })
	}
	k.mu.Unlock()
	var errs []error
	for service, names := range files {
		errs = append(errs, k.o.Files.KeepSecrets(sandboxID, service, names...))
	}
	return errors.Join(errs...)
}

// deliver delivers one secret if its source has changed, or if what was delivered is lost.
func (k *Keeper) deliver(sandboxID string, s *sandbox, one secret) error {
	if id, err := hostfiles.Identify(one.path); err == nil && s.seen[one] == id && k.o.Files.HasSecret(sandboxID, one.service, one.file) {
		return nil
	}
	delete(s.seen, one)
	had, err := k.o.Files.Secret(sandboxID, one.service, one.file)
	first := errdefs.IsNotFound(err)
	value, id, why := hostfiles.ReadSecret(one.path, k.o.Refuses)
	k.note(sandboxID, s, one, why)
	switch {
	case why != "" && first:
		return fmt.Errorf("%s: %q %s: %w", one, one.path, why, errdefs.ErrFailedPrecondition)
	case why != "":
		value = had.Value
	}
	if injected(one) {
		k.noteUnfit(sandboxID, s, one, inject.Unfit(value))
	}
	if first || err != nil || had.Target != one.target || !bytes.Equal(had.Value, value) {
		if err := k.o.Files.PutSecret(sandboxID, one.service, one.file, execjournal.Secret{Target: one.target, Value: value}); err != nil {
			return err
		}
		k.o.Logger.Info("secret delivered", "sandbox_id", sandboxID, "service", one.service, "secret", one.name, "first", first)
	}
	if why == "" && id.Settled(time.Now()) {
		s.seen[one] = id
	}
	return nil
}

func injected(s secret) bool { return s.service == execjournal.Injector }

// deliverAuthority makes a sandbox trust the authority that signs for hosts to whose requests headers are added. What has not changed since the last
// delivery is not compared with the file.
func (k *Keeper) deliverAuthority(sandboxID string, s *sandbox) error {
	certificate, err := k.o.Authority(sandboxID)
	if err != nil {
		return err
	}
	next := execjournal.Secret{Value: certificate, Roots: true, Others: k.o.Trusted()}
	if sameRoots(s.authority, next) && k.o.Files.HasSecret(sandboxID, "", execjournal.AuthoritySecret) {
		return nil
	}
	had, err := k.o.Files.Secret(sandboxID, "", execjournal.AuthoritySecret)
	put := next
	if len(next.Others) == 0 {
		put.Others = had.Others // those that this daemon can't read at present
	}
	if err != nil || !sameRoots(had, put) {
		if err := k.o.Files.PutSecret(sandboxID, "", execjournal.AuthoritySecret, put); err != nil {
			return err
		}
	}
	s.authority = next
	return nil
}

func sameRoots(a, b execjournal.Secret) bool {
	return a.Roots == b.Roots && bytes.Equal(a.Value, b.Value) && bytes.Equal(a.Others, b.Others)
}

// noteUnfit records whether a value can be added to requests.
func (k *Keeper) noteUnfit(sandboxID string, s *sandbox, one secret, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if why != "" && s.unfit[one] != why {
		k.o.Logger.Warn("a secret can't be added to requests", "sandbox_id", sandboxID, "secret", one.name, "path", one.path, "reason", why)
	}
	if s.unfit[one] = why; why == "" {
		delete(s.unfit, one)
	}
}

// note records whether a source can be read.
func (k *Keeper) note(sandboxID string, s *sandbox, one secret, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch was := s.broken[one]; {
	case why == "":
		delete(s.broken, one)
	case was != why:
		s.broken[one] = why
		k.o.Logger.Warn("the file of a secret can't be read", "sandbox_id", sandboxID, "service", one.service, "secret", one.name, "path", one.path, "reason", why)
	}
}

// Problems returns one sentence for each secret that is not as its file.
func (k *Keeper) Problems(sandboxID string) (problems []string) {
	k.mu.Lock()
	if s := k.of[sandboxID]; s != nil {
		for _, one := range s.wanted {
			if why := s.broken[one]; why != "" {
				problems = append(problems, fmt.Sprintf("%s: %q %s; the sandbox keeps the last value, if it had one", one, one.path, why))
			}
			if why := s.unfit[one]; why != "" {
				problems = append(problems, fmt.Sprintf("%s: its value %s, and cannot be added to requests: they are answered 502", one, why))
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
	k.follow(ctx)
	k.mu.Lock()
	ids := slices.Collect(maps.Keys(k.of))
	paths := map[string]bool{}
	for _, s := range k.of {
		for _, one := range s.wanted {
			paths[one.path] = true
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
