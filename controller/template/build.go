package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protojson"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/buildfiles"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/wait"
)

const (
	// Bounds of the log of a build.
	maxLogLines = 10_000
	maxLogBytes = 4 << 20
	// buildMemory limits the container of a step if the template has no limit.
	buildMemory = 2 << 30
	// guardEvery is the time between two checks of the disk, and the least time between two lists of the containers of steps.
	guardEvery = 500 * time.Millisecond
	limitEvery = 50 * time.Millisecond
	// limitTries is how often the limits of containers are tried: one that is being removed refuses it, and one that does not run yet may lose it.
	limitTries = 100
	// endTimeout bounds the writing of a build's end.
	endTimeout = 20 * time.Second
)

// run is a build that was started.
type run struct {
	k        *Keeper
	id       string
	template string
	record   *storev1.TemplateBuild
	from     string
	req      *agboxv1.StartTemplateBuildRequest
	recipe   *recipe
	ctx      context.Context //nolint:containedctx // of the build, which goes on after the call that starts it
	stop     context.CancelCauseFunc
	created  chan struct{} // a container of a step may have been created
	ended    chan struct{} // closed when the run is forgotten

	mu    sync.Mutex
	log   *buildfiles.Log
	lines []buildfiles.Line
	bytes int
	step  uint32 // that prints now
}

// start runs a build in the background. Its record exists.
func (r *run) start() {
	r.k.wg.Go(func() {
		begun := time.Now()
		err := r.build()
		step := r.step
		if err == nil {
			step = 0
		}
		r.k.audit(plan.BuildTemplate, plan.BecauseRequested, r.id, begun, err)
		r.end(err, step)
	})
}

var (
	errInterrupted = errors.New(interrupted)
	errRemoved     = errors.New("the build was cancelled: its template is being removed")
	errTooLong     = fmt.Errorf("the build has taken more than %s", buildTimeout)
)

// end records the end of the build, and then forgets it.
func (r *run) end(err error, step uint32) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	problem := ""
	if err != nil {
		problem = oneLine(err.Error())
	}
	if problem != interrupted { // which the missing end says
		if endErr := r.k.o.Store.EndTemplateBuild(ctx, r.id, problem, step); endErr != nil {
			r.k.o.Logger.Warn("the end of a template build is not recorded", "build_id", r.id, "err", endErr)
		}
	}
	r.mu.Lock()
	if r.log != nil {
		_ = r.log.Close() // it was written line by line
	}
	r.mu.Unlock()
	r.k.mu.Lock()
	delete(r.k.started, r.id)
	r.k.mu.Unlock()
	r.k.dropFiles(ctx, r.template)
	r.stop(nil)
	close(r.ended)
}

// dropFiles removes the uploaded files of a template unless another build of it may use them.
func (k *Keeper) dropFiles(ctx context.Context, template string) {
	k.files.Lock()
	defer k.files.Unlock()
	if k.busy()[template] {
		return
	}
	all, err := k.o.Store.TemplateBuilds(ctx)
	waits := func(b *storev1.TemplateBuild) bool {
		return b.GetTemplateId() == template && b.GetStartedAt() == 0 && time.Since(time.Unix(0, b.GetCreatedAt())) < filesAge
	}
	if err == nil && slices.ContainsFunc(slices.Collect(maps.Values(all)), waits) {
		return
	}
	if err := k.o.Files.RemoveArchives(template); err != nil {
		k.o.Logger.Warn("files of a template build are removed later", "template_id", template, "err", err)
	}
}

// build builds. What has ended its context is the error, whatever the engine says of it.
func (r *run) build() error {
	select {
	case r.k.slots <- struct{}{}:
		defer func() { <-r.k.slots }()
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
	ctx, cancel := context.WithTimeoutCause(r.ctx, buildTimeout, errTooLong)
	defer cancel()
	err := r.make(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

func (r *run) make(ctx context.Context) error {
	r.k.cache.RLock()
	defer r.k.cache.RUnlock()
	if err := r.k.o.CheckMarker(ctx); err != nil {
		return err
	}
	guarded := make(chan struct{})
	defer func() { <-guarded }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(guarded)
		r.guard(ctx)
	}()
	r.print(0, "FROM "+r.from)
	base, err := r.k.o.Engine.EnsureImage(ctx, r.from, dockerx.PullOptions{})
	if err != nil {
		return err
	}
	if naming.IsOthers(r.record.GetOwner(), r.from, base.Labels, base.Refs) {
		return fmt.Errorf("image %s is a template or snapshot of another owner: %w", r.from, errdefs.ErrNotFound)
	}
	r.recipe.lines[0] = "FROM " + base.ID
	built, err := r.steps(ctx)
	if err != nil {
		return err
	}
	labels, err := r.labels()
	if err != nil {
		return err
	}
	_, err = r.k.o.Engine.RewriteImage(ctx, built, built, naming.BuildRef(r.id), labels)
	return err
}

// steps runs the engine's builder, and returns the image of the last step.
func (r *run) steps(ctx context.Context) (string, error) {
	in, out := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(out, r.recipe, func(hash string) (io.ReadCloser, error) { return r.k.o.Files.Open(r.template, hash) })
		_ = out.CloseWithError(err) // never fails
		packed <- err
	}()
	memory := int64(r.record.GetMemoryMib()) << 20
	if memory == 0 {
		memory = buildMemory
	}
	cpus := float64(runtime.NumCPU())
	if n := float64(r.record.GetCpus()); n > 0 {
		cpus = math.Min(cpus, n)
	}
	id, err := r.k.o.Engine.BuildImage(ctx, dockerx.BuildSpec{Context: in, MemoryBytes: memory, CPUs: cpus, Within: buildTimeout, Log: r.output})
	_ = in.Close() // never fails; ends pack if the engine has not read all
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, io.ErrClosedPipe) {
		return "", packErr
	}
	if err != nil {
		return "", r.failure(err)
	}
	return id, nil
}

var exitCode = regexp.MustCompile(`returned a non-zero code: (\d+)`)

// failure says which step failed.
func (r *run) failure(err error) error {
	if r.step == 0 || !errdefs.IsFailedPrecondition(err) {
		return err
	}
	if code := exitCode.FindStringSubmatch(err.Error()); code != nil {
		return fmt.Errorf("step %d of %d ended with the exit code %s: %s: %w", r.step, len(r.recipe.titles), code[1], r.title(), errdefs.ErrFailedPrecondition)
	}
	return fmt.Errorf("step %d of %d: %s: %w", r.step, len(r.recipe.titles), r.title(), err)
}

// title returns the present step, shortened.
func (r *run) title() string {
	const most = 200
	title := oneLine(r.recipe.titles[r.step-1])
	if len(title) > most {
		title = oneLine(title[:most]) + "..."
	}
	return title
}

// labels returns those of the finished image.
func (r *run) labels() (map[string]string, error) {
	settings, err := protojson.Marshal(&agboxv1.TemplateSettings{
		StartCommand: r.req.GetStartCommand(), ReadyCommand: r.req.GetReadyCommand(), User: r.recipe.user, WorkingDir: r.recipe.dir,
		Cpus: r.record.GetCpus(), MemoryMib: r.record.GetMemoryMib(),
	})
	return map[string]string{
		naming.BuildLayer: "", naming.BuildFresh: "", naming.BuildInstance: r.k.o.Store.InstanceID(), naming.BuildID: r.id, naming.BuildTemplate: r.template,
		naming.BuildOwner: r.record.GetOwner(), naming.BuildName: r.record.GetName(), naming.BuildAt: strconv.FormatInt(time.Now().UnixNano(), 10),
		naming.BuildSettings: string(settings),
	}, err
}

var (
	stepLine = regexp.MustCompile(`^Step (\d+)/\d+ : `)
	// noise are lines of the engine about its own images and containers.
	noise = regexp.MustCompile(`^( ---> ([0-9a-f]{12}|Running in [0-9a-f]{12}|Using cache)|Removing intermediate container [0-9a-f]{12}|Successfully built [0-9a-f]{12})$`)
)

// output handles a line of the engine.
func (r *run) output(line string) {
	if m := stepLine.FindStringSubmatch(line); m != nil {
		n, _ := strconv.Atoi(m[1]) // the pattern allows nothing else
		if n < 1 || n > len(r.recipe.steps) || r.recipe.steps[n-1] == r.step {
			return
		}
		if r.step = r.recipe.steps[n-1]; r.step > 0 {
			r.print(r.step, fmt.Sprintf("[%d/%d] %s", r.step, len(r.recipe.titles), r.title()))
		}
		return
	}
	if !noise.MatchString(line) {
		r.print(r.step, line)
		return
	}
	select {
	case r.created <- struct{}{}:
	default:
	}
}

// guard bounds what the engine's builder does not, until ctx ends: the processes of steps, and the disk that they fill.
func (r *run) guard(ctx context.Context) {
	limited, tries := map[string]bool{}, 0
	ticker := time.NewTicker(guardEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if why := r.k.o.NoRoom(); why != "" {
				r.stop(refuse("DISK_FULL", errdefs.ErrUnavailable, "build_id", r.id, "the build was cancelled: %s", why))
			}
			continue
		case <-r.created:
		}
		again, err := r.k.limitSteps(ctx, limited)
		_ = wait.For(ctx, limitEvery) // a step may print the lines of the engine
		if tries++; !again || tries == limitTries {
			tries = 0
			if err != nil {
				r.stop(fmt.Errorf("limit the processes of a step: %w", err))
			}
			continue
		}
		select {
		case r.created <- struct{}{}:
		default:
		}
	}
}

// limitSteps limits the processes of all containers of steps that are not in limited, and adds those that ran before: a limit that is set while the
// engine starts a container may be lost. again: there are others. The output of a build does not say for sure which one is its own, and needs not:
// the limit is the same for all.
func (k *Keeper) limitSteps(ctx context.Context, limited map[string]bool) (again bool, err error) {
	all, err := k.containers(ctx)
	for _, c := range all {
		if limited[c.ID] {
			continue
		}
		detail, inspectErr := k.o.Engine.InspectContainer(ctx, c.ID)
		if inspectErr == nil {
			detail.Limits.Pids = k.o.PidsLimit()
			inspectErr = k.o.Engine.UpdateContainer(ctx, c.ID, detail.Limits)
		}
		switch {
		case errdefs.IsNotFound(inspectErr), inspectErr == nil && detail.Running, inspectErr == nil && !detail.FinishedAt.IsZero():
			limited[c.ID] = true
		default:
			again, err = true, errors.Join(err, inspectErr)
		}
	}
	return again || err != nil, err
}

// print adds a line to the log. The one after the last that there is room for says so.
func (r *run) print(step uint32, text string) {
	line := buildfiles.Line{At: time.Now(), Step: step, Text: oneLine(text)}
	r.mu.Lock()
	defer r.mu.Unlock()
	full := func() bool { return len(r.lines) > maxLogLines || r.bytes > maxLogBytes }
	if full() {
		return
	}
	if r.bytes += len(line.Text) + 1; len(r.lines) == maxLogLines || r.bytes > maxLogBytes {
		line.Text = "the log of the build is full; what follows is not kept"
		r.bytes = maxLogBytes + 1
	}
	r.lines = append(r.lines, line)
	if r.log == nil {
		return
	}
	if err := r.log.Append(line); err != nil { // the disk is full; readers of this process lose nothing
		r.k.o.Logger.Warn("the log of a template build is not stored", "build_id", r.id, "err", err)
		_ = r.log.Close()
		r.log = nil
	}
}

// read returns lines of the log.
func (r *run) read(offset, limit int) []buildfiles.Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	if offset >= len(r.lines) {
		return nil
	}
	return slices.Clone(r.lines[offset:min(len(r.lines), offset+limit)])
}
