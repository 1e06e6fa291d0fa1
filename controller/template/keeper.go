package template

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/auditlog"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/buildfiles"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/store"
)

const (
	// atOnce is how many builds run at once, and maxStarted how many run or wait for that.
	atOnce     = 2
	maxStarted = 20
	// buildTimeout bounds a build from the time when it runs.
	buildTimeout = time.Hour
	// cacheAge is how long the images of steps are kept for later builds.
	cacheAge = 24 * time.Hour
	// filesAge is how long files are kept for a build that is not started.
	filesAge = 24 * time.Hour
	// sweepEvery is the time between two sweeps of the engine.
	sweepEvery = time.Hour
	// replacedAge is how long the image of a build is kept after a newer one of the template: a sandbox may be about to be created from it.
	replacedAge = 10 * time.Minute
)

// Store is the part of the store that a Keeper uses.
type Store interface {
	InstanceID() string
	InstanceIDs() []string
	RebuildPending() bool
	List(ctx context.Context, f store.Filter) ([]store.Sandbox, error)
	CreateTemplateBuild(ctx context.Context, id string, b *storev1.TemplateBuild, mayDrop func(id string, b *storev1.TemplateBuild) bool) error
	StartTemplateBuild(ctx context.Context, id string) error
	EndTemplateBuild(ctx context.Context, id, problem string, step uint32) error
	RemoveTemplateBuilds(ctx context.Context, ids []string) error
	TemplateBuild(ctx context.Context, id string) (*storev1.TemplateBuild, error)
	TemplateBuilds(ctx context.Context) (map[string]*storev1.TemplateBuild, error)
}

// Engine is the part of the engine that a Keeper uses.
type Engine interface {
	EnsureImage(ctx context.Context, ref string, o dockerx.PullOptions) (dockerx.Image, error)
	BuildImage(ctx context.Context, spec dockerx.BuildSpec) (string, error)
	RewriteImage(ctx context.Context, layersOf, configOf, ref string, labels map[string]string) (dockerx.Image, error)
	ListImages(ctx context.Context, labels map[string]string) ([]dockerx.LocalImage, error)
	RemoveImage(ctx context.Context, id string) error
	ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error)
	InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error)
	UpdateContainer(ctx context.Context, id string, limits dockerx.Limits) error
	RemoveContainer(ctx context.Context, id string) error
}

// Options are the dependencies of a Keeper. All are required.
type Options struct {
	Store  Store
	Engine Engine
	Files  *buildfiles.Dir
	// CheckMarker checks that the engine is ours.
	CheckMarker func(ctx context.Context) error
	// PidsLimit returns the limit of processes of a step. NoRoom returns why the disk is full, in one sentence, or "". They must not block.
	PidsLimit func() int64
	NoRoom    func() string
	// UID and GID are those of the default user in images that lack it.
	UID, GID int
	Logger   *slog.Logger
	Metrics  *metrics.Metrics
}

// Keeper builds, lists and removes templates. Its memory is what it is building, and is lost with the process, as the builds are.
type Keeper struct {
	o     Options
	wg    sync.WaitGroup
	ctx   context.Context
	stop  context.CancelCauseFunc
	slots chan struct{}
	// cache is held for reading by builds, and for writing while images of their steps are removed.
	cache sync.RWMutex
	// files is held while uploaded files are judged and removed, and while a build is recorded that may find them.
	files sync.Mutex

	mu       sync.Mutex
	started  map[string]*run // by build ID
	removing map[string]int  // calls that remove a template, by its ID
	swept    time.Time       // of the last sweep of the engine; zero: none since the start of the daemon
	built    bool            // a build was started by this daemon
}

// New returns a Keeper.
func New(o Options) *Keeper {
	k := &Keeper{o: o, slots: make(chan struct{}, atOnce), started: map[string]*run{}, removing: map[string]int{}}
	k.ctx, k.stop = context.WithCancelCause(context.Background())
	return k
}

// Close cancels the builds, and waits for that. Their records show that they were interrupted.
func (k *Keeper) Close() {
	k.stop(errInterrupted)
	k.wg.Wait()
}

func (k *Keeper) running(build string) *run {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.started[build]
}

// busy returns the templates with a build that was started.
func (k *Keeper) busy() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string]bool{}
	for _, r := range k.started {
		all[r.template] = true
	}
	return all
}

// audit writes the metric and the audit line of a step.
func (k *Keeper) audit(kind plan.Kind, why plan.Reason, object string, begun time.Time, err error) {
	k.o.Metrics.Step(string(kind), err)
	auditlog.Write(k.o.Logger, "", plan.Step{Kind: kind, ID: object, Reason: why}, object, time.Since(begun), err)
}

// images lists the images of our instances that have all the labels, newest first.
func (k *Keeper) images(ctx context.Context, instance string, labels map[string]string) (all []dockerx.LocalImage, err error) {
	for _, id := range k.o.Store.InstanceIDs() {
		labels[instance] = id
		some, err := k.o.Engine.ListImages(ctx, labels)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// Leftovers lists what builds have left while none runs: containers, and the images of steps, which are a cache, those first on which no other
// was built. While a build runs, it lists nothing. Errors: ErrUnavailable.
func (k *Keeper) Leftovers(ctx context.Context) (containers []dockerx.Container, layers []dockerx.LocalImage, err error) {
	if !k.cache.TryLock() {
		return nil, nil, nil
	}
	defer k.cache.Unlock()
	return k.leftovers(ctx)
}

// containers lists the containers of steps.
func (k *Keeper) containers(ctx context.Context) (all []dockerx.Container, err error) {
	for _, id := range k.o.Store.InstanceIDs() {
		some, err := k.o.Engine.ListContainers(ctx, map[string]string{naming.BuildLayer: id})
		if err != nil {
			return nil, err
		}
		for _, c := range some {
			if c.Labels[naming.BuildLayer] == id { // no list makes us change anything else
				all = append(all, c)
			}
		}
	}
	return all, nil
}

func (k *Keeper) leftovers(ctx context.Context) (containers []dockerx.Container, layers []dockerx.LocalImage, err error) {
	if containers, err = k.containers(ctx); err != nil {
		return nil, nil, err
	}
	layers, err = k.images(ctx, naming.BuildLayer, map[string]string{})
	layers = slices.DeleteFunc(layers, func(i dockerx.LocalImage) bool { return len(i.Refs) > 0 }) // a user has named it
	return containers, childrenFirst(layers), err
}

func childrenFirst(all []dockerx.LocalImage) (sorted []dockerx.LocalImage) {
	depth := map[string]int{}
	parent := map[string]string{}
	for _, i := range all {
		parent[i.ID] = i.Parent
	}
	for _, i := range all {
		for id := i.ID; parent[id] != "" && depth[i.ID] <= len(all); id = parent[id] {
			depth[i.ID]++
		}
	}
	slices.SortStableFunc(all, func(a, b dockerx.LocalImage) int { return depth[b.ID] - depth[a.ID] })
	return all
}

// Sweep removes what builds of an earlier daemon left, images of steps that are older than cacheAge, the images of builds that newer ones
// replaced, and files that no build uses: on the engine at the first call, while the disk is full, and else once an hour if there were builds. While
// a build runs, it leaves the first two alone. The engine must be ours. Errors: ErrUnavailable.
func (k *Keeper) Sweep(ctx context.Context) error {
	records, err := k.sweepFiles(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	last, built := k.swept, k.built
	k.mu.Unlock()
	full := k.o.NoRoom() != ""
	if !full && !last.IsZero() && (time.Since(last) < sweepEvery || len(records) == 0 && !built) {
		return nil
	}
	if err := k.sweepReplaced(ctx); err != nil {
		return err
	}
	return k.sweepLeftovers(ctx, last.IsZero() || full)
}

// sweepFiles removes files that no build uses, and returns the records of builds.
func (k *Keeper) sweepFiles(ctx context.Context) (map[string]*storev1.TemplateBuild, error) {
	k.files.Lock()
	defer k.files.Unlock()
	records, err := k.o.Store.TemplateBuilds(ctx)
	if err != nil {
		return nil, err
	}
	busy := k.busy()
	for _, b := range records {
		if b.GetStartedAt() == 0 && time.Since(time.Unix(0, b.GetCreatedAt())) < filesAge {
			busy[b.GetTemplateId()] = true
		}
	}
	err = k.o.Files.Sweep(time.Now(), filesAge, func(t string) bool { return busy[t] }, func(b string) bool { return records[b] != nil })
	if err != nil {
		k.o.Logger.Warn("files of template builds are not removed", "err", err)
	}
	return records, nil
}

// sweepLeftovers removes what builds left; all: also the images of steps that are not old.
func (k *Keeper) sweepLeftovers(ctx context.Context, all bool) error {
	if !k.cache.TryLock() {
		return nil
	}
	defer k.cache.Unlock()
	containers, layers, err := k.leftovers(ctx)
	if err != nil {
		return err
	}
	for _, c := range containers {
		begun := time.Now()
		err := k.o.Engine.RemoveContainer(ctx, c.ID)
		k.audit(plan.RemoveTemplate, plan.BecauseOrphan, c.ID, begun, err)
		if err != nil {
			return err
		}
	}
	for _, i := range layers {
		if !all && time.Since(i.Created) < cacheAge {
			continue
		}
		begun := time.Now()
		err := k.o.Engine.RemoveImage(ctx, i.ID)
		if errdefs.IsFailedPrecondition(err) { // it is in use: agbox gc says so
			continue
		}
		k.audit(plan.RemoveTemplate, plan.BecauseOrphan, i.ID, begun, err)
		if err != nil {
			return err
		}
	}
	k.mu.Lock()
	k.swept = time.Now()
	k.mu.Unlock()
	return nil
}

// DropCache removes the images of steps that were built on an image, and reports whether there were any. They keep it from removal. While a build
// runs, it does nothing. Errors: ErrUnavailable.
func (k *Keeper) DropCache(ctx context.Context, image string) (dropped bool, err error) {
	if !k.cache.TryLock() {
		return false, nil
	}
	defer k.cache.Unlock()
	_, layers, err := k.leftovers(ctx)
	if err != nil {
		return false, err
	}
	parent := map[string]string{}
	for _, i := range layers {
		parent[i.ID] = i.Parent
	}
	for _, i := range layers { // children first
		base := i.Parent
		for parent[base] != "" {
			base = parent[base]
		}
		if base != image {
			continue
		}
		begun := time.Now()
		err := k.o.Engine.RemoveImage(ctx, i.ID)
		k.audit(plan.RemoveTemplate, plan.BecauseRequested, i.ID, begun, err)
		if err != nil {
			return dropped, err
		}
		dropped = true
	}
	return dropped, nil
}

// sweepReplaced removes the images of builds that a newer one of their template replaced, and that no sandbox uses.
func (k *Keeper) sweepReplaced(ctx context.Context) error {
	if k.o.Store.RebuildPending() {
		return nil
	}
	all, err := k.finished(ctx, "", "")
	if err != nil {
		return err
	}
	newest := map[string]finished{}
	for _, f := range all { // newest first
		newer, replaced := newest[f.template]
		if !replaced {
			newest[f.template] = f
			continue
		}
		if time.Since(newer.at) < replacedAge {
			continue
		}
		if err := k.removeImage(ctx, f); err != nil && !errdefs.IsFailedPrecondition(err) {
			return err
		}
	}
	return nil
}

// stateOf is the state of a build. image: a finished image of it is there.
func (k *Keeper) stateOf(id string, b *storev1.TemplateBuild, image bool) (state agboxv1.TemplateBuildState, problem string) {
	switch {
	case k.running(id) != nil:
		return agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_BUILDING, ""
	case b.GetError() != "":
		return agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_ERROR, b.GetError()
	case b.GetEndedAt() != 0 || image:
		return agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_READY, ""
	case b.GetStartedAt() != 0:
		return agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_ERROR, interrupted
	}
	return agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_WAITING, ""
}

const interrupted = "the build was interrupted by the end of agboxd; start it again"

// oneLine is a text as a line of a log.
func oneLine(s string) string {
	return strings.ToValidUTF8(strings.NewReplacer("\n", " ", "\r", " ").Replace(s), "\uFFFD")
}
