package sandbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// Values of pull_policy; the empty one is if-not-present.
const (
	pullAlways = "always"
	pullNever  = "never"
)

// ImageOf returns the image and the pull policy of the primary (""), or of a service.
func ImageOf(spec *agboxv1.CreateSpec, service string) (ref, policy string) {
	if svc := ServiceSpec(spec, service); svc != nil {
		return svc.GetImage(), svc.GetPullPolicy()
	}
	return spec.GetImage(), spec.GetPullPolicy()
}

// ensureImage finds the image or pulls it in the background. The engine port shares concurrent pulls of one image.
func (p *pass) ensureImage(ctx context.Context, s plan.Step) error {
	ref, policy := ImageOf(p.sb.Spec, s.Service)
	key := queue.Operation[plan.Kind]{ID: p.rec.ID, Kind: s.Kind, Subject: ref}
	if slices.Contains(p.ops.Subjects(p.rec.ID, plan.EnsureImage), ref) {
		return &waitingError{"pulling image " + ref} // also if the image is present by now: the end of the pull records an event
	}
	image, err := p.o.Engine.InspectImage(ctx, ref)
	if g := p.sb.Spec.GetGateway(); err == nil && g != nil && naming.IsOthers(g.GetOwner(), ref, image.Labels, image.Refs) {
		return fmt.Errorf("image %s is a template or snapshot of another owner: %w", ref, errdefs.ErrNotFound)
	}
	ended, failure := p.ops.Outcome(key)
	switch {
	case err == nil && (policy != pullAlways || ended && failure == nil): // also if the image appeared after a failed pull
		p.images[s.Service] = image
		return nil
	case err != nil && !errdefs.IsNotFound(err):
		return err
	case policy == pullNever:
		return fmt.Errorf("image %s is not in the engine, and pull_policy is %q: %w", ref, pullNever, errdefs.ErrNotFound)
	case failure != nil:
		return failure
	}
	p.pull(ctx, s, key, policy == pullAlways)
	return &waitingError{"pulling image " + ref}
}

func (p *pass) pull(ctx context.Context, s plan.Step, key queue.Operation[plan.Kind], always bool) {
	reporter := &pullReporter{p: p, ref: key.Subject, service: s.Service}
	_, _ = p.ops.Start(ctx, key, 0, p.audited(s, key.Subject, func(ctx context.Context) error {
		_, err := p.o.Engine.EnsureImage(ctx, key.Subject, dockerx.PullOptions{
			Always: always, Progress: func(progress dockerx.PullProgress) { reporter.progress(ctx, progress) },
		})
		if err == nil && !reporter.reported.IsZero() { // an event of its progress was recorded
			reporter.report(ctx, "pulled", reporter.last)
		}
		return err
	}))
}

// pullEventInterval is the minimum time between the events of a pull; the status shows its progress more often.
const pullEventInterval = 10 * time.Second

// pullReporter reports the progress of one pull for one sandbox, in its status and in its events. The engine port calls it only while the
// pull waits for its EnsureImage.
type pullReporter struct {
	p            *pass
	ref, service string

	reported time.Time
	last     dockerx.PullProgress
}

func (t *pullReporter) progress(ctx context.Context, progress dockerx.PullProgress) {
	t.last = progress
	if t.p.rec.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING {
		t.p.scratch.setStatus(t.p.rec.ID, fmt.Sprintf("pulling image %s%s", t.ref, share(progress)))
	}
	// While the registry has sent nothing, only the status shows the pull. An event would also enqueue a pass, and so immediately retry a
	// pull that fails at once.
	if progress.Layers > 0 && time.Since(t.reported) >= pullEventInterval {
		t.reported = time.Now()
		t.report(ctx, "pulling", progress)
	}
}

// share formats how much of a pull is done; empty if the total is unknown.
func share(p dockerx.PullProgress) string {
	if p.Total <= 0 {
		return ""
	}
	return fmt.Sprintf(": %.1f of %.1f MB", float64(p.Current)/1e6, float64(p.Total)/1e6)
}

// report records an event against the present intent: an update does not end a pull. It drops errors: a pull does not fail because its event
// cannot be recorded. An error of the store appears elsewhere, and a sandbox that is being deleted needs no more events.
func (t *pullReporter) report(ctx context.Context, status string, p dockerx.PullProgress) {
	e := &agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_IMAGE_PULLING,
		Details: &agboxv1.SandboxEvent_ImagePull{ImagePull: &agboxv1.ImagePullDetails{
			Image: t.ref, ServiceName: t.service, CurrentBytes: p.Current, TotalBytes: p.Total, Status: status,
		}},
	}
	sb, err := t.p.o.Store.Sandbox(ctx, t.p.rec.ID)
	if err == nil && sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_RUN {
		err = t.p.Reconciler.report(ctx, sb.ID, sb.Desired.GetGeneration(), plan.Report{Events: []*agboxv1.SandboxEvent{e}}, 0)
	}
	if err != nil && !errdefs.IsAborted(err) && ctx.Err() == nil {
		t.p.log.Warn("progress of a pull is not recorded", "sandbox_id", t.p.rec.ID, "err", err)
	}
}
