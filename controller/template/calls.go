package template

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/buildfiles"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

const (
	maxLogAnswer = 1000
	maxCommand   = 32 << 10
	minMemory    = 64 // MiB
	maxMemory    = 1 << 20
	maxCPUs      = 1024
)

var templateName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)

// idOf returns the ID of a template. It follows from owner and name, so that nothing has to map names, and two calls make one template.
func idOf(owner, name string) string {
	sum := sha256.Sum256([]byte(owner + "\x00" + name))
	return "t" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:25])
}

func refuse(reason string, class error, key, id, format string, args ...any) error {
	return &store.Refusal{Reason: reason, Class: class, Message: fmt.Sprintf(format, args...), Metadata: map[string]string{key: id}}
}

func badField(field, format string, args ...any) error {
	return refuse("INVALID_SPEC", errdefs.ErrInvalidArgument, "field", field, field+" "+format, args...)
}

func templateNotFound(id string) error {
	return refuse("TEMPLATE_NOT_FOUND", errdefs.ErrNotFound, "template_id", id, "template %s was not found", id)
}

// CreateTemplateBuild implements the RPC.
func (k *Keeper) CreateTemplateBuild(ctx context.Context, req *agboxv1.CreateTemplateBuildRequest) (*agboxv1.TemplateBuild, error) {
	switch {
	case !templateName.MatchString(req.GetName()):
		return nil, badField("name", "must be 1 to 128 of lowercase letters, digits, -, _ and ., the first a letter or a digit")
	case req.GetCpus() > maxCPUs:
		return nil, badField("cpus", "must be at most %d", maxCPUs)
	case req.GetMemoryMib() != 0 && (req.GetMemoryMib() < minMemory || req.GetMemoryMib() > maxMemory):
		return nil, badField("memory_mib", "must be %d to %d", minMemory, maxMemory)
	}
	id := strings.ToLower(rand.Text())
	b := &storev1.TemplateBuild{
		TemplateId: idOf(req.GetGatewayOwner(), req.GetName()), Owner: req.GetGatewayOwner(), Name: req.GetName(), Cpus: req.GetCpus(), MemoryMib: req.GetMemoryMib(),
	}
	// A build that waits for its files is kept for as long as they are.
	mayDrop := func(id string, b *storev1.TemplateBuild) bool {
		return k.running(id) == nil && (b.GetStartedAt() != 0 || time.Since(time.Unix(0, b.GetCreatedAt())) > filesAge)
	}
	k.files.Lock() // the files that the client may find are not removed
	err := k.o.Store.CreateTemplateBuild(ctx, id, b, mayDrop)
	k.files.Unlock()
	if err != nil {
		return nil, err
	}
	return k.build(ctx, req.GetGatewayOwner(), id)
}

// known checks that an owner has a template. Errors: Refusal TEMPLATE_NOT_FOUND.
func (k *Keeper) known(ctx context.Context, owner, id string) error {
	all, err := k.o.Store.TemplateBuilds(ctx)
	if err != nil {
		return err
	}
	for _, b := range all {
		if b.GetTemplateId() == id && b.GetOwner() == owner {
			return nil
		}
	}
	return templateNotFound(id)
}

// HasTemplateFiles implements the RPC.
func (k *Keeper) HasTemplateFiles(ctx context.Context, owner, template, hash string) (bool, error) {
	if !buildfiles.IsHash(hash) {
		return false, badField("hash", "must be 64 lowercase hexadecimal digits")
	}
	if err := k.known(ctx, owner, template); err != nil {
		return false, err
	}
	return k.o.Files.Has(template, hash)
}

// UploadTemplateFiles implements the RPC.
func (k *Keeper) UploadTemplateFiles(ctx context.Context, owner, template, hash string, r io.Reader) error {
	if _, err := k.HasTemplateFiles(ctx, owner, template, hash); err != nil {
		return err
	}
	err := k.o.Files.Save(ctx, template, hash, r)
	if errors.Is(err, buildfiles.ErrTooLarge) {
		return refuse("TEMPLATE_FILES_TOO_LARGE", errdefs.ErrResourceExhausted, "template_id", template, "%v", err)
	}
	return err
}

// StartTemplateBuild implements the RPC. The build goes on after it has returned.
func (k *Keeper) StartTemplateBuild(ctx context.Context, req *agboxv1.StartTemplateBuildRequest) error {
	b, err := k.record(ctx, req.GetGatewayOwner(), req.GetBuildId())
	if err != nil {
		return err
	}
	if b.GetStartedAt() != 0 { // its files may be gone since
		return startedBefore(req.GetBuildId())
	}
	r, err := k.newRun(req.GetBuildId(), b, proto.CloneOf(req))
	if err != nil {
		return err
	}
	k.mu.Lock()
	err = context.Cause(k.ctx)
	switch {
	case err != nil:
	case k.removing[r.template] > 0:
		err = inUse(r.template, "it is being removed")
	case k.started[r.id] != nil:
		err = startedBefore(r.id)
	case len(k.started) >= maxStarted:
		err = refuse("TEMPLATE_BUILDS_FULL", errdefs.ErrResourceExhausted, "build_id", r.id, "%d builds run or wait; try again when one has ended", len(k.started))
	default:
		k.started[r.id], k.built = r, true
	}
	k.mu.Unlock()
	if err != nil {
		r.stop(nil)
		return err
	}
	if err := k.o.Store.StartTemplateBuild(ctx, r.id); err != nil { // before the first call of the engine
		k.mu.Lock()
		delete(k.started, r.id)
		k.mu.Unlock()
		r.stop(nil)
		close(r.ended)
		return err
	}
	if r.log, err = k.o.Files.CreateLog(r.template, r.id); err != nil {
		k.o.Logger.Warn("the log of a template build is not stored", "build_id", r.id, "err", err)
	}
	r.start()
	return nil
}

func startedBefore(build string) error {
	return refuse("TEMPLATE_BUILD_STARTED", errdefs.ErrFailedPrecondition, "build_id", build, "build %s was started before", build)
}

func (k *Keeper) newRun(id string, b *storev1.TemplateBuild, req *agboxv1.StartTemplateBuildRequest) (*run, error) {
	switch {
	case req.GetFromImage() == "":
		return nil, badField("from_image", "is required")
	case len(req.GetStartCommand()) > maxCommand:
		return nil, badField("start_command", "must be at most %d bytes", maxCommand)
	case len(req.GetReadyCommand()) > maxCommand:
		return nil, badField("ready_command", "must be at most %d bytes", maxCommand)
	}
	recipe, err := newRecipe(req, options{from: "scratch", instance: k.o.Store.InstanceID(), owner: b.GetOwner(), build: id, uid: k.o.UID, gid: k.o.GID})
	if err != nil {
		return nil, err
	}
	for _, s := range recipe.sources {
		has, err := k.o.Files.Has(b.GetTemplateId(), s.hash)
		if err != nil {
			return nil, err
		}
		if !has {
			return nil, invalid(s.step, "its files were not uploaded, or their build was not started within %s", filesAge)
		}
	}
	r := &run{
		k: k, id: id, template: b.GetTemplateId(), record: b, from: req.GetFromImage(), req: req, recipe: recipe,
		created: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	r.ctx, r.stop = context.WithCancelCause(k.ctx)
	return r, nil
}

// record returns the record of an owner's build. Errors: Refusal TEMPLATE_BUILD_NOT_FOUND.
func (k *Keeper) record(ctx context.Context, owner, id string) (*storev1.TemplateBuild, error) {
	b, err := k.o.Store.TemplateBuild(ctx, id)
	if err == nil && b.GetOwner() != owner {
		err = refuse("TEMPLATE_BUILD_NOT_FOUND", errdefs.ErrNotFound, "build_id", id, "build %s was not found", id)
	}
	return b, err
}

// build returns a build. It asks the engine only about one whose end is not on record.
func (k *Keeper) build(ctx context.Context, owner, id string) (*agboxv1.TemplateBuild, error) {
	b, err := k.record(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	image := false
	if b.GetStartedAt() != 0 && b.GetEndedAt() == 0 && k.running(id) == nil {
		all, err := k.finished(ctx, naming.BuildID, id)
		if err != nil {
			return nil, err
		}
		image = len(all) > 0
		if b, err = k.record(ctx, owner, id); err != nil { // it may have ended meanwhile
			return nil, err
		}
	}
	return k.shown(id, b, image), nil
}

func (k *Keeper) shown(id string, b *storev1.TemplateBuild, image bool) *agboxv1.TemplateBuild {
	state, problem := k.stateOf(id, b, image)
	out := &agboxv1.TemplateBuild{
		BuildId: id, TemplateId: b.GetTemplateId(), GatewayOwner: b.GetOwner(), Name: b.GetName(), State: state, ErrorMessage: problem, ErrorStep: b.GetErrorStep(),
		CreatedAt: timestamppb.New(time.Unix(0, b.GetCreatedAt())),
	}
	if b.GetEndedAt() != 0 {
		out.EndedAt = timestamppb.New(time.Unix(0, b.GetEndedAt()))
	}
	return out
}

// GetTemplateBuild implements the RPC.
func (k *Keeper) GetTemplateBuild(ctx context.Context, req *agboxv1.GetTemplateBuildRequest) (*agboxv1.GetTemplateBuildResponse, error) {
	r := k.running(req.GetBuildId())                                // first: the last lines are in the file before it is forgotten
	b, err := k.build(ctx, req.GetGatewayOwner(), req.GetBuildId()) // before the log: a build that has ended prints no more
	if err != nil {
		return nil, err
	}
	offset, limit := int(req.GetLogOffset()), int(min(req.GetLogLimit(), maxLogAnswer))
	var lines []buildfiles.Line
	switch {
	case limit == 0:
	case r != nil:
		lines = r.read(offset, limit)
	default:
		if lines, err = k.o.Files.ReadLog(b.GetTemplateId(), b.GetBuildId(), offset, limit); err != nil {
			return nil, err
		}
	}
	resp := &agboxv1.GetTemplateBuildResponse{Build: b}
	for _, l := range lines {
		resp.Log = append(resp.Log, &agboxv1.TemplateLogLine{At: timestamppb.New(l.At), Text: strings.ToValidUTF8(l.Text, "\uFFFD"), Step: l.Step})
	}
	return resp, nil
}

// finished is the image of a finished build.
type finished struct {
	build, template, owner, name string
	image                        string
	at                           time.Time
	settings                     *agboxv1.TemplateSettings
	size                         int64
}

// finished lists the images of finished builds, those with a label unless its name is empty, newest first.
func (k *Keeper) finished(ctx context.Context, label, value string) (all []finished, err error) {
	labels := map[string]string{naming.BuildID: ""}
	if label != "" {
		labels[label] = value
	}
	images, err := k.images(ctx, naming.BuildInstance, labels)
	for _, i := range images {
		id := i.Labels[naming.BuildID]
		if id == "" || !slices.Contains(i.Refs, naming.BuildRef(id)) {
			continue // what was built or committed on one has its labels, but not its name
		}
		f := finished{
			build: id, template: i.Labels[naming.BuildTemplate], owner: i.Labels[naming.BuildOwner], name: i.Labels[naming.BuildName],
			image: i.ID, settings: &agboxv1.TemplateSettings{}, size: i.Size,
		}
		nanos, _ := strconv.ParseInt(i.Labels[naming.BuildAt], 10, 64)
		f.at = time.Unix(0, nanos)
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(i.Labels[naming.BuildSettings]), f.settings); err != nil {
			k.o.Logger.Warn("the settings of a template do not decode", "build_id", id, "err", err)
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b finished) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.build, b.build)) })
	return all, err
}

// ListTemplates implements the RPC.
func (k *Keeper) ListTemplates(ctx context.Context, owner string) ([]*agboxv1.Template, error) {
	records, err := k.o.Store.TemplateBuilds(ctx)
	if err != nil {
		return nil, err
	}
	images, err := k.finished(ctx, "", "")
	if err != nil {
		return nil, err
	}
	all, ready := map[string]*agboxv1.Template{}, map[string]bool{}
	of := func(id, templateOwner, name string) *agboxv1.Template {
		if all[id] == nil {
			all[id] = &agboxv1.Template{TemplateId: id, GatewayOwner: templateOwner, Name: name}
		}
		return all[id]
	}
	for _, f := range images { // newest first
		if owner != "" && f.owner != owner {
			continue
		}
		ready[f.build] = true
		t := of(f.template, f.owner, f.name)
		if t.GetImage() == "" {
			t.BuildId, t.Image, t.Settings, t.SizeBytes = f.build, f.image, f.settings, uint64(max(f.size, 0))
			t.State, t.UpdatedAt, t.CreatedAt = agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_READY, timestamppb.New(f.at), timestamppb.New(f.at)
		}
		if records[f.build] == nil {
			t.BuildCount++
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(records), func(a, b string) int {
		return cmp.Or(cmp.Compare(records[a].GetCreatedAt(), records[b].GetCreatedAt()), strings.Compare(a, b))
	}) {
		b := records[id]
		if owner != "" && b.GetOwner() != owner {
			continue
		}
		t := of(b.GetTemplateId(), b.GetOwner(), b.GetName())
		at := timestamppb.New(time.Unix(0, b.GetCreatedAt()))
		t.State, _ = k.stateOf(id, b, ready[id])
		if t.BuildCount++; t.GetCreatedAt() == nil || at.AsTime().Before(t.GetCreatedAt().AsTime()) {
			t.CreatedAt = at
		}
		if t.GetUpdatedAt() == nil || at.AsTime().After(t.GetUpdatedAt().AsTime()) {
			t.UpdatedAt = at
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *agboxv1.Template) int {
		return cmp.Or(b.GetCreatedAt().AsTime().Compare(a.GetCreatedAt().AsTime()), cmp.Compare(a.GetTemplateId(), b.GetTemplateId()))
	}), nil
}

// RemoveTemplate implements the RPC. It cancels builds that run, unless a sandbox keeps the template. Cut off by a crash, it can be repeated: the
// records go last.
func (k *Keeper) RemoveTemplate(ctx context.Context, owner, id string) error {
	if k.o.Store.RebuildPending() {
		return fmt.Errorf("records are being rebuilt; whether template %s is in use is known when that is done: %w", id, errdefs.ErrUnavailable)
	}
	if err := k.o.CheckMarker(ctx); err != nil {
		return err
	}
	if _, _, err := k.removable(ctx, owner, id); err != nil {
		return err
	}
	defer k.stopBuilds(id)()
	images, records, err := k.removable(ctx, owner, id) // a build may have finished
	if err != nil {
		return err
	}
	for _, f := range images {
		if err := k.removeImage(ctx, f); errdefs.IsFailedPrecondition(err) {
			return inUse(id, "a container or an image outside of agbox was made from image "+f.image+", or it has another name")
		} else if err != nil {
			return err
		}
	}
	if err := k.o.Files.RemoveTemplate(id); err != nil {
		return err
	}
	return k.o.Store.RemoveTemplateBuilds(ctx, slices.Collect(maps.Keys(records)))
}

// removable returns the images and records of a template. Errors: Refusals TEMPLATE_NOT_FOUND and TEMPLATE_IN_USE.
func (k *Keeper) removable(ctx context.Context, owner, id string) ([]finished, map[string]*storev1.TemplateBuild, error) {
	images, err := k.finished(ctx, naming.BuildTemplate, id)
	if err != nil {
		return nil, nil, err
	}
	images = slices.DeleteFunc(images, func(f finished) bool { return f.owner != owner })
	records, err := k.o.Store.TemplateBuilds(ctx)
	if err != nil {
		return nil, nil, err
	}
	maps.DeleteFunc(records, func(_ string, b *storev1.TemplateBuild) bool { return b.GetTemplateId() != id || b.GetOwner() != owner })
	if len(images)+len(records) == 0 {
		return nil, nil, templateNotFound(id)
	}
	for _, f := range images { // all or none
		if user, err := k.user(ctx, f); err != nil {
			return nil, nil, err
		} else if user != "" {
			return nil, nil, inUse(id, "delete sandbox "+user+" first")
		}
	}
	return images, records, nil
}

// stopBuilds cancels the builds of a template, and waits for that. Until the returned function is called, none starts.
func (k *Keeper) stopBuilds(template string) (resume func()) {
	k.mu.Lock()
	k.removing[template]++
	runs := slices.DeleteFunc(slices.Collect(maps.Values(k.started)), func(r *run) bool { return r.template != template })
	k.mu.Unlock()
	for _, r := range runs {
		r.stop(errRemoved)
	}
	for _, r := range runs {
		<-r.ended
	}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.removing[template]--; k.removing[template] == 0 {
			delete(k.removing, template)
		}
	}
}

func inUse(id, why string) error {
	return refuse("TEMPLATE_IN_USE", errdefs.ErrFailedPrecondition, "template_id", id, "template %s is in use: %s", id, why)
}

// removeImage removes the image of a build. Errors: ErrFailedPrecondition while it is in use.
func (k *Keeper) removeImage(ctx context.Context, f finished) error {
	if user, err := k.user(ctx, f); err != nil {
		return err
	} else if user != "" {
		return inUse(f.template, "sandbox "+user+" was made from it")
	}
	begun := time.Now()
	err := k.o.Engine.RemoveImage(ctx, f.image)
	if errdefs.IsFailedPrecondition(err) {
		if dropped, dropErr := k.DropCache(ctx, f.image); dropErr != nil {
			return dropErr
		} else if dropped {
			err = k.o.Engine.RemoveImage(ctx, f.image)
		}
	}
	if !errdefs.IsFailedPrecondition(err) {
		k.audit(plan.RemoveTemplate, plan.BecauseRequested, f.build, begun, err)
	}
	return err
}

// user returns a sandbox that has an image in its spec and is not deleted; empty: there is none.
func (k *Keeper) user(ctx context.Context, f finished) (string, error) {
	all, err := k.o.Store.List(ctx, store.Filter{})
	is := func(image string) bool { return image == f.image || image == naming.BuildRef(f.build) }
	for _, sb := range all {
		uses := slices.ContainsFunc(slices.Concat(sb.Spec.GetRequiredServices(), sb.Spec.GetOptionalServices()), func(s *agboxv1.ServiceSpec) bool { return is(s.GetImage()) })
		if uses || is(sb.Spec.GetImage()) {
			return sb.ID, nil
		}
	}
	return "", err
}
