package sandbox

import (
	"context"
	"strings"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/execid"
)

// lastRecords is how many lines of a container's output are read for an error message.
const lastRecords = 20

// lastOutput returns the end of what a container printed, as text without secrets, if the plan is about to report its failure: the
// container should run, and it has ended or is unhealthy. Output that the engine does not have is empty.
func (r *Reader) lastOutput(ctx context.Context, v View, c plan.Container) (string, error) {
	rec, spec := v.Record, v.Sandbox.Spec
	bad := c.Ended() || c.Health == string(dockerx.HealthUnhealthy)
	if !bad || !rec.WantsRun() {
		return "", nil
	}
	if c.Service == "" {
		if !rec.Wanted.Main {
			return "", nil
		}
		return message.Redact(r.endOf(rec.ID, execid.Main), spec.GetEnvs(), r.o.Files.SecretValues(rec.ID, "")), nil
	}
	sp := rec.Progress.GetServices()[c.Service]
	if !sp.GetStarted() || sp.GetMark() == storev1.ServiceMark_SERVICE_MARK_FAILED {
		return "", nil
	}
	records, err := r.o.Engine.ReadLogs(ctx, c.ID, lastRecords)
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsInternal(err) { // a log that the engine cannot read must not hide the failure
		return "", err
	}
	var out strings.Builder
	for _, rec := range records {
		out.Write(rec.Text)
	}
	return message.Redact(message.Printable(lastBytes(out.String(), maxLastOutput)), ServiceSpec(spec, c.Service).GetEnvs(),
		r.o.Files.SecretValues(rec.ID, c.Service)), nil
}

// lastBytes returns the end of text.
func lastBytes(text string, most int) []byte { return []byte(text[max(0, len(text)-most):]) }
