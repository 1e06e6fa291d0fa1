package controller

import (
	"fmt"
	"maps"
	"slices"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/naming"
)

// Where things are in every primary. Containers that exist can't be changed: neither can these.
const (
	shimTarget = "/run/agbox/bin"
	ctlTarget  = "/run/agbox/ctl"
	outTarget  = "/run/agbox/out"
	logTarget  = "/var/log/agents-sandbox"
	workingDir = "/workspace"
)

// labels are those of every object of the sandbox, as they are at creation.
func (p *pass) labels(component string) map[string]string {
	l := map[string]string{
		naming.SandboxID: p.rec.ID,
		naming.Component: component,
		naming.Instance:  p.cfg.Store.InstanceID(),
		naming.SpecHash:  plan.SpecHash(p.sb.Spec),
	}
	for k, v := range p.sb.Spec.GetLabels() {
		l[naming.UserPrefix+k] = v
	}
	return l
}

// primarySpec describes the primary container. PID 1 is the shim, whatever the image would start: it reaps, and it
// starts every exec.
func (p *pass) primarySpec(networkID string) (dockerx.ContainerSpec, error) {
	paths, err := p.cfg.Execs.Prepare(p.rec.ID)
	if err != nil {
		return dockerx.ContainerSpec{}, err
	}
	label, err := plan.SpecLabel(p.sb.Spec)
	if err != nil {
		return dockerx.ContainerSpec{}, err
	}
	labels := p.labels(naming.ComponentPrimary)
	labels[naming.Spec] = label
	mounts := []dockerx.Mount{
		{Source: p.cfg.ShimDir, Target: shimTarget},
		{Source: paths.Logs, Target: logTarget, Writable: true},
		{Source: paths.Ctl, Target: ctlTarget},
		{Source: paths.Out, Target: outTarget, Writable: true},
	}
	for _, m := range p.sb.Spec.GetMounts() {
		mounts = append(mounts, dockerx.Mount{Source: m.GetSource(), Target: m.GetTarget(), Writable: m.GetWritable()})
	}
	return dockerx.ContainerSpec{
		Name: naming.Primary(p.rec.ID), Image: p.sb.Spec.GetImage(), Hostname: p.sb.Name,
		Entrypoint: []string{shimTarget + "/agbox-shim", "init", "--default-user=" + p.image.User},
		Env:        p.env(), User: "0:0", WorkingDir: workingDir,
		Labels: labels, Mounts: mounts, NetworkID: networkID,
	}, nil
}

// env is sorted, so that the same spec always makes the same container.
func (p *pass) env() []string {
	env := map[string]string{
		"HOST_UID": fmt.Sprint(p.cfg.HostUID),
		"HOST_GID": fmt.Sprint(p.cfg.HostGID),
	}
	maps.Copy(env, p.sb.Spec.GetEnvs())
	var list []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}
