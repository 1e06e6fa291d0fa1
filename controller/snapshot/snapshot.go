// Package snapshot makes images of sandboxes' files, lists and removes them. The image, with its labels, is all that there is of a snapshot.
package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/auditlog"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/store"
)

// partPatience is how long an abandoned commit of the engine is expected to end with a part. The engine bounds no commit; the daemon waits for one
// at most 10 minutes.
const partPatience = time.Hour

// tries is how often the files of a sandbox are copied, if it is thawed, started or stopped meanwhile.
const tries = 3

// errTouched is that of a commit during which the container ran, or may have.
var errTouched = errors.New("the container ran while its files were copied")

// Store is the part of the store that a Keeper reads.
type Store interface {
	InstanceID() string
	InstanceIDs() []string
	RebuildPending() bool
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	List(ctx context.Context, f store.Filter) ([]store.Sandbox, error)
}

// Engine is the part of the engine that a Keeper uses.
type Engine interface {
	InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error)
	PauseContainer(ctx context.Context, id string) error
	UnpauseContainer(ctx context.Context, id string) error
	CommitContainer(ctx context.Context, id string, labels map[string]string) (string, error)
	RewriteImage(ctx context.Context, layersOf, configOf, ref string, labels map[string]string) (dockerx.Image, error)
	ListImages(ctx context.Context, labels map[string]string) ([]dockerx.LocalImage, error)
	RemoveImage(ctx context.Context, id string) error
}

// Options are the dependencies of a Keeper. All are required.
type Options struct {
	Store  Store
	Engine Engine
	// Primary returns the ID of the primary container of a sandbox. Errors: ErrNotFound, the engine shows none; ErrUnavailable.
	Primary func(ctx context.Context, sandboxID string) (string, error)
	// CheckMarker checks that the engine is ours.
	CheckMarker func(ctx context.Context) error
	// Enqueue adds a sandbox to the queue.
	Enqueue func(sandboxID string)
	// FreezeRefusal says why the engine can't freeze containers; empty: it can. It must not block.
	FreezeRefusal func() string
	Logger        *slog.Logger
	Metrics       *metrics.Metrics
}

// Keeper makes, lists and removes snapshots. Its memory is what it is making, and is lost with the process, as the snapshots are that are
// not complete then.
type Keeper struct {
	o    Options
	wg   sync.WaitGroup
	ctx  context.Context
	stop context.CancelFunc

	mu    sync.Mutex
	calls map[string]*call // by snapshot ID
	busy  map[string]bool  // by sandbox ID
	// sweepUntil is the time until which the engine may complete an abandoned commit.
	sweepUntil time.Time
}

// call makes one snapshot.
type call struct {
	sandboxID string
	done      chan struct{}
	made      *agboxv1.Snapshot // not changed once it is made
	err       error
}

// New returns a Keeper.
func New(o Options) *Keeper {
	k := &Keeper{o: o, calls: map[string]*call{}, busy: map[string]bool{}, sweepUntil: time.Now().Add(partPatience)}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Close gives up the snapshots that are being made, and waits for that. The engine may go on with a commit, whose part the next daemon removes.
func (k *Keeper) Close() {
	k.stop()
	k.wg.Wait()
}

// Committing reports whether a snapshot of a sandbox is being made.
func (k *Keeper) Committing(sandboxID string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.busy[sandboxID]
}

// CreateSnapshot makes a snapshot of a sandbox's files, and returns once it is complete. It goes on if the caller leaves. Repeated with the same
// arguments, it returns the snapshot that exists, also after the sandbox was deleted. Cut off by a crash, it has made the snapshot or not.
//
// Errors: ErrNotFound; Refusals ENGINE_CANNOT_FREEZE, SNAPSHOT_ID_ALREADY_EXISTS for another sandbox's, SANDBOX_INVALID_STATE, and SANDBOX_BUSY while another
// snapshot of the sandbox is being made, or if the sandbox is thawed, started or stopped again and again; ErrUnavailable.
func (k *Keeper) CreateSnapshot(ctx context.Context, sandboxID, id string) (*agboxv1.Snapshot, error) {
	c, err := k.begin(sandboxID, id)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		return c.made, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin starts a call, or joins the one that makes this snapshot.
func (k *Keeper) begin(sandboxID, id string) (*call, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.ctx.Err(); err != nil {
		return nil, err
	}
	if c := k.calls[id]; c != nil {
		if c.sandboxID != sandboxID {
			return nil, taken(id)
		}
		return c, nil
	}
	// The end of the first commit of a container would thaw it amid the second.
	if k.busy[sandboxID] {
		return nil, refusal("SANDBOX_BUSY", errdefs.ErrAborted, sandboxID, "another snapshot of sandbox %s is being made; try again when it is complete", sandboxID)
	}
	c := &call{sandboxID: sandboxID, done: make(chan struct{})}
	k.calls[id], k.busy[sandboxID] = c, true
	k.wg.Go(func() {
		c.made, c.err = k.make(k.ctx, sandboxID, id)
		k.mu.Lock()
		delete(k.calls, id)
		delete(k.busy, sandboxID)
		k.mu.Unlock()
		close(c.done)
		k.o.Enqueue(sandboxID) // a pass may have left the container frozen
	})
	return c, nil
}

func (k *Keeper) make(ctx context.Context, sandboxID, id string) (*agboxv1.Snapshot, error) {
	if err := k.o.CheckMarker(ctx); err != nil {
		return nil, err
	}
	all, err := k.list(ctx, map[string]string{naming.SnapshotID: id})
	if err != nil {
		return nil, err
	}
	switch {
	case len(all) > 0 && all[0].GetSandboxId() != sandboxID:
		return nil, taken(id)
	case len(all) > 0:
		return all[0], nil
	}
	var made *agboxv1.Snapshot
	for range tries {
		if made, err = k.try(ctx, sandboxID, id); !errors.Is(err, errTouched) {
			return made, err
		}
	}
	return nil, refusal("SANDBOX_BUSY", errdefs.ErrAborted, sandboxID, "sandbox %s did not rest while its files were copied; try again", sandboxID)
}

// try makes a snapshot of the sandbox in its present state. Errors: errTouched, and those of CreateSnapshot.
func (k *Keeper) try(ctx context.Context, sandboxID, id string) (*agboxv1.Snapshot, error) {
	sb, err := k.o.Store.Sandbox(ctx, sandboxID)
	if err != nil {
		return nil, err
	}
	if !hasFiles(sb) {
		return nil, refusal("SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, sandboxID, "sandbox %s is not ready, paused or stopped", sandboxID)
	}
	if sb.Spec.GetSecurity().GetReadOnlyRoot() {
		return nil, refusal("SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, sandboxID,
			"sandbox %s has a read-only root: its files are in volumes, which no snapshot contains; copy them out with agbox cp", sandboxID)
	}
	if why := k.o.FreezeRefusal(); why != "" && sb.State == agboxv1.SandboxState_SANDBOX_STATE_READY {
		return nil, store.RefuseFreeze(sandboxID, why, "Stop it for the snapshot: its files must rest meanwhile")
	}
	begun := time.Now()
	made, err := k.commit(ctx, id, sb)
	k.audit(plan.CreateSnapshot, plan.BecauseRequested, sandboxID, id, begun, err)
	if err != nil {
		k.mu.Lock()
		k.sweepUntil = time.Now().Add(partPatience)
		k.mu.Unlock()
	}
	return made, err
}

// audit writes the metric and the audit line of a step.
func (k *Keeper) audit(kind plan.Kind, why plan.Reason, sandboxID, object string, begun time.Time, err error) {
	k.o.Metrics.Step(string(kind), err)
	auditlog.Write(k.o.Logger, sandboxID, plan.Step{Kind: kind, ID: object, Reason: why}, object, time.Since(begun), err)
}

// hasFiles reports whether a sandbox has its primary, and keeps it.
func hasFiles(sb store.Sandbox) bool {
	switch sb.State {
	case agboxv1.SandboxState_SANDBOX_STATE_READY, agboxv1.SandboxState_SANDBOX_STATE_PAUSED, agboxv1.SandboxState_SANDBOX_STATE_STOPPED:
		return sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_DELETE
	}
	return false
}

// commit makes the part, and of it the snapshot. The part has what is in the container's environment.
func (k *Keeper) commit(ctx context.Context, id string, sb store.Sandbox) (*agboxv1.Snapshot, error) {
	primary, err := k.o.Primary(ctx, sb.ID)
	if err != nil {
		return nil, err
	}
	instance := k.o.Store.InstanceID()
	part, base, err := k.still(ctx, sb.ID, primary, map[string]string{naming.SnapshotInstance: instance, naming.SnapshotPart: id, naming.SnapshotID: ""})
	if err == nil {
		_, err = k.o.Engine.RewriteImage(ctx, part, base, naming.SnapshotRef(instance, id), map[string]string{
			naming.SnapshotInstance: instance, naming.SnapshotID: id, naming.SnapshotOf: sb.ID, naming.SnapshotOwner: sb.Spec.GetGateway().GetOwner(),
		})
		err = toldWhy(sb.ID, err)
	}
	if part != "" {
		k.removePart(ctx, id, part) // before the list: containerd's store counts what it has unpacked for the part
	}
	if err != nil {
		return nil, err
	}
	all, err := k.list(ctx, map[string]string{naming.SnapshotID: id})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("snapshot %s was removed: %w", id, errdefs.ErrAborted)
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func (k *Keeper) removePart(ctx context.Context, id, part string) {
	if err := k.o.Engine.RemoveImage(ctx, part); err != nil {
		k.o.Logger.Warn("the part of a snapshot is left until a resync or agbox gc", "snapshot_id", id, "image", part, "err", err)
	}
}

// still commits a container that does not run meanwhile, and returns the part and the container's image. With an error there may be a part too.
//
// The daemon freezes and thaws: a freeze by the engine's commit would end with a commit of an earlier daemon that the engine still goes on with.
func (k *Keeper) still(ctx context.Context, sandboxID, primary string, labels map[string]string) (part, base string, err error) {
	before, err := k.o.Engine.InspectContainer(ctx, primary)
	if err != nil {
		return "", "", err
	}
	if before.Running {
		defer k.thaw(ctx, sandboxID, primary)
		if err := k.o.Engine.PauseContainer(ctx, primary); err != nil {
			return "", "", ended(err)
		}
	}
	part, err = k.o.Engine.CommitContainer(ctx, primary, labels)
	after, inspectErr := k.o.Engine.InspectContainer(ctx, primary)
	touched := inspectErr == nil && (after.Running != before.Running || after.Running && !after.Paused || !after.StartedAt.Equal(before.StartedAt))
	switch {
	case touched: // then a failed commit may have met a file that grew
		return part, "", errors.Join(errTouched, err)
	case err != nil:
		return "", "", toldWhy(sandboxID, ended(err))
	}
	return part, before.Image, ended(inspectErr)
}

// ended adds errTouched to the error of a container that has ended or is being removed: the sandbox's record says what that means.
func ended(err error) error {
	if errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) {
		return fmt.Errorf("%w: %w", errTouched, err)
	}
	return err
}

// toldWhy shows the caller what the engine could not do, mostly for lack of space on its disk.
func toldWhy(sandboxID string, err error) error {
	if !errdefs.IsInternal(err) {
		return err
	}
	return refusal("UNAVAILABLE", errdefs.ErrUnavailable, sandboxID, "the engine could not copy the files of sandbox %s: %s", sandboxID, message.Of(err))
}

// thaw lets a container run again, unless its sandbox is paused. It also does so at the end of the daemon.
func (k *Keeper) thaw(ctx context.Context, sandboxID, primary string) {
	ctx = context.WithoutCancel(ctx)
	sb, err := k.o.Store.Sandbox(ctx, sandboxID)
	if err == nil && sb.State != agboxv1.SandboxState_SANDBOX_STATE_PAUSED {
		err = k.o.Engine.UnpauseContainer(ctx, primary)
	}
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) { // it is gone, or has ended
		k.o.Logger.Warn("a sandbox stays frozen until the next pass", "sandbox_id", sandboxID, "container_id", primary, "err", err)
	}
}

// Snapshots lists the snapshots of a sandbox, of an owner, or of all if these are empty; newest first. Errors: ErrUnavailable.
func (k *Keeper) Snapshots(ctx context.Context, sandboxID, owner string) ([]*agboxv1.Snapshot, error) {
	labels := map[string]string{naming.SnapshotID: ""}
	if sandboxID != "" {
		labels[naming.SnapshotOf] = sandboxID
	}
	if owner != "" {
		labels[naming.SnapshotOwner] = owner
	}
	return k.list(ctx, labels)
}

func (k *Keeper) list(ctx context.Context, labels map[string]string) (out []*agboxv1.Snapshot, err error) {
	images, err := k.images(ctx, labels)
	for _, i := range images {
		if naming.FindSnapshotRef(i.Labels, i.Refs) != "" {
			out = append(out, &agboxv1.Snapshot{
				SnapshotId: i.Labels[naming.SnapshotID], SandboxId: i.Labels[naming.SnapshotOf], GatewayOwner: i.Labels[naming.SnapshotOwner],
				Image: i.ID, CreatedAt: timestamppb.New(i.Created), SizeBytes: uint64(max(i.Size, 0)),
			})
		}
	}
	return out, err
}

// images lists the images of our instances that have all the labels, newest first.
func (k *Keeper) images(ctx context.Context, labels map[string]string) (all []dockerx.LocalImage, err error) {
	for _, instance := range k.o.Store.InstanceIDs() {
		labels[naming.SnapshotInstance] = instance
		some, err := k.o.Engine.ListImages(ctx, labels)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b dockerx.LocalImage) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// RemoveSnapshot removes a snapshot. Cut off by a crash, it can be repeated. Errors: Refusals SNAPSHOT_NOT_FOUND, and SNAPSHOT_IN_USE
// while a sandbox has it in its spec or a container, in any state, was made from it; ErrUnavailable, also while records are being rebuilt.
func (k *Keeper) RemoveSnapshot(ctx context.Context, id string) error {
	if k.o.Store.RebuildPending() {
		return fmt.Errorf("records are being rebuilt; whether snapshot %s is in use is known when that is done: %w", id, errdefs.ErrUnavailable)
	}
	if err := k.o.CheckMarker(ctx); err != nil {
		return err
	}
	all, err := k.list(ctx, map[string]string{naming.SnapshotID: id})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return snapshotRefusal("SNAPSHOT_NOT_FOUND", errdefs.ErrNotFound, id, "snapshot %s was not found", id)
	}
	for _, s := range all {
		if err := k.remove(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (k *Keeper) remove(ctx context.Context, s *agboxv1.Snapshot) error {
	users, err := k.users(ctx, s)
	if err != nil {
		return err
	}
	if users != "" { // also one that has no container yet, which the engine does not know
		return snapshotRefusal("SNAPSHOT_IN_USE", errdefs.ErrFailedPrecondition, s.GetSnapshotId(), "snapshot %s is in use: %s", s.GetSnapshotId(), users)
	}
	begun := time.Now()
	err = k.o.Engine.RemoveImage(ctx, s.GetImage())
	k.audit(plan.RemoveSnapshot, plan.BecauseRequested, s.GetSandboxId(), s.GetSnapshotId(), begun, err)
	if errdefs.IsFailedPrecondition(err) {
		return snapshotRefusal("SNAPSHOT_IN_USE", errdefs.ErrFailedPrecondition, s.GetSnapshotId(),
			"snapshot %s is in use: a container or an image outside of agbox was made from image %s, or it has another name", s.GetSnapshotId(), s.GetImage())
	}
	return err
}

// users says which sandboxes have a snapshot in their spec, and what to do; empty: there is none.
func (k *Keeper) users(ctx context.Context, s *agboxv1.Snapshot) (string, error) {
	all, err := k.o.Store.List(ctx, store.Filter{})
	is := func(image string) bool {
		named := func(instance string) bool { return image == naming.SnapshotRef(instance, s.GetSnapshotId()) }
		return image == s.GetImage() || named("") || slices.ContainsFunc(k.o.Store.InstanceIDs(), named)
	}
	uses := func(svc *agboxv1.ServiceSpec) bool { return is(svc.GetImage()) }
	var live, leaving []string
	for _, sb := range all {
		switch name := cmp.Or(sb.Name, sb.ID); {
		case !is(sb.Spec.GetImage()) && !slices.ContainsFunc(slices.Concat(sb.Spec.GetRequiredServices(), sb.Spec.GetOptionalServices()), uses):
		case sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE:
			leaving = append(leaving, name)
		default:
			live = append(live, name)
		}
	}
	switch {
	case err != nil:
		return "", err
	case len(live) > 0:
		return fmt.Sprintf("delete %s first", named(live)), nil
	case len(leaving) > 0:
		return "the delete of " + named(leaving) + " goes on; try again when it is done", nil
	}
	return "", nil
}

// maxNamed is how many sandboxes a refusal names.
const maxNamed = 5

// named is "sandbox a", or "sandboxes a, b and 3 more".
func named(names []string) string {
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	switch rest := len(names) - maxNamed; {
	case rest > 0:
		return fmt.Sprintf("sandboxes %s and %d more", text, rest)
	case len(names) > 1:
		return "sandboxes " + text
	}
	return "sandbox " + text
}

// Parts lists the parts without a running commit, newest first: those of an earlier daemon, and of commits that ended after their
// deadline. Errors: ErrUnavailable.
func (k *Keeper) Parts(ctx context.Context) ([]dockerx.LocalImage, error) {
	parts, err := k.images(ctx, map[string]string{naming.SnapshotPart: ""})
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(parts, func(p dockerx.LocalImage) bool { return k.calls[p.Labels[naming.SnapshotPart]] != nil }), err
}

// Sweep removes what Parts lists, while the engine may still complete such a part; later it does nothing. The engine must be ours. Errors:
// ErrUnavailable.
func (k *Keeper) Sweep(ctx context.Context) error {
	k.mu.Lock()
	due := time.Now().Before(k.sweepUntil)
	k.mu.Unlock()
	if !due {
		return nil
	}
	parts, err := k.Parts(ctx)
	if err != nil {
		return err
	}
	for _, p := range parts {
		begun := time.Now()
		err := k.o.Engine.RemoveImage(ctx, p.ID)
		k.audit(plan.RemoveSnapshot, plan.BecauseOrphan, "", p.ID, begun, err)
		if err != nil && !errdefs.IsFailedPrecondition(err) { // a container outside of agbox uses it: agbox gc says so
			return err
		}
	}
	return nil
}

func taken(id string) error {
	return snapshotRefusal("SNAPSHOT_ID_ALREADY_EXISTS", errdefs.ErrAlreadyExists, id, "snapshot_id %s already exists", id)
}

func snapshotRefusal(reason string, class error, id, format string, args ...any) error {
	return &store.Refusal{Reason: reason, Class: class, Message: fmt.Sprintf(format, args...), Metadata: map[string]string{"snapshot_id": id}}
}

func refusal(reason string, class error, sandboxID, format string, args ...any) error {
	return &store.Refusal{Reason: reason, Class: class, Message: fmt.Sprintf(format, args...), Metadata: map[string]string{"sandbox_id": sandboxID}}
}
