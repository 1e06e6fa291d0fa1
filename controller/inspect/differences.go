package inspect

import (
	"fmt"
	"strings"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// differences returns what of a sandbox differs from the desired state, one line each. failure is the message of a FAILED one. It decides
// nothing: the plan says which parts are not in the spec.
func differences(rec plan.Record, failure string, w plan.World, p plan.Plan) []string {
	d := &differ{rec: rec, w: w}
	create := rec.ErrorCode == plan.CodeCreateFailed
	switch {
	case rec.Standing == plan.Gone:
		d.leftovers()
	case rec.Standing != plan.Live:
	case rec.Desired == storev1.RunState_RUN_STATE_DELETE:
		d.state()
		d.leftovers()
	case rec.Failed():
		d.add("the state is FAILED (%s: %s)", rec.ErrorCode, failure)
		if create {
			d.leftovers()
		} else {
			d.down()
		}
	case rec.Desired == storev1.RunState_RUN_STATE_STOP:
		d.state()
		d.down()
	case rec.Desired == storev1.RunState_RUN_STATE_PAUSE:
		d.state()
		d.paused()
	default:
		d.state()
		d.running()
	}
	d.notInSpec(p)
	return d.lines
}

type differ struct {
	rec   plan.Record
	w     plan.World
	lines []string
}

func (d *differ) add(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *differ) state() {
	if !d.rec.Reached() {
		d.add("the state is %s, not %s", enum.Word(d.rec.State), enum.Word(sandboxstate.Goal(d.rec.Desired)))
	}
}

// find returns the container of the primary (""), or of a service, under any name; nil: there is none.
func (d *differ) find(service string) *plan.Container { return plan.PartOf(d.rec, d.w, service) }

// leftovers adds the objects that should be gone.
func (d *differ) leftovers() {
	for _, ct := range d.w.Containers {
		d.add("container %s is still there", ct.Name)
	}
	for _, n := range d.w.Networks {
		d.add("network %s is still there", shortID(n.ID))
	}
	if d.w.Inputs {
		d.add("its directories are still there")
	}
}

// down adds what runs although nothing should, and a missing primary of a stopped sandbox.
func (d *differ) down() {
	for _, ct := range d.w.Containers {
		if ct.Alive() {
			d.add("container %s is %s, not stopped", ct.Name, ct.Status)
		}
	}
	if d.find("") == nil {
		d.add("container %s is missing", naming.Primary(d.rec.ID))
	}
	d.execs()
}

func (d *differ) execs() {
	if d.rec.ActiveExecs > 0 {
		d.add("%d of its execs have not ended", d.rec.ActiveExecs)
	}
}

func (d *differ) paused() {
	if !d.rec.DemotedAt.IsZero() {
		d.down()
		return
	}
	for _, ct := range d.w.Containers {
		if ct.Alive() && !ct.Frozen() {
			d.add("container %s is %s, not paused", ct.Name, ct.Status)
		}
	}
	if ct := d.find(""); ct == nil || !ct.Alive() {
		d.missing(ct, naming.Primary(d.rec.ID))
	}
}

// running adds the parts of the spec that are not running and healthy.
func (d *differ) running() {
	if len(d.w.Networks) == 0 {
		d.add("network %s is missing", naming.Network(d.rec.ID))
	}
	d.part(naming.Primary(d.rec.ID), plan.Service{Limits: d.rec.Wanted.Limits})
	for _, s := range d.rec.Wanted.Services {
		d.part(naming.Service(d.rec.ID, s.Name), s)
	}
	if h := d.w.Hook; h != nil {
		d.add("hook %d of service %s has not ended well", h.Number, h.Service)
	}
}

// part compares one container. The primary counts as a service without a healthcheck.
func (d *differ) part(name string, s plan.Service) {
	ct := d.find(s.Name)
	switch {
	case ct == nil || ct.Status != "running":
		d.missing(ct, name)
		return
	case ct.Health != "" && ct.Health != "healthy":
		d.add("container %s is %s, not healthy", name, ct.Health)
	case ct.Health == "" && s.Healthcheck:
		d.add("container %s has not said that it is healthy", name)
	}
	if d.rec.LimitsPending && ct.Inspected && ct.Limits != s.Limits {
		d.add("container %s has other limits than the spec", name)
	}
}

// missing adds a container that does not run.
func (d *differ) missing(ct *plan.Container, name string) {
	switch {
	case ct == nil:
		d.add("container %s is missing", name)
	case ct.Ended():
		d.add("container %s is not running: it %s", name, condition(*ct))
	default:
		d.add("container %s is %s, not running", name, ct.Status)
	}
}

func (d *differ) notInSpec(p plan.Plan) {
	for _, s := range p.Steps {
		if s.Reason != plan.BecauseNotInSpec {
			continue
		}
		d.add("%s %s is not of the spec", strings.TrimPrefix(string(s.Kind), "remove-"), objectName(d.w, s.ID))
	}
}
