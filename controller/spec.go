package controller

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/execjournal"
	"github.com/agbox/agbox/internal/naming"
)

// workingDir is where execs start. It is part of the contract.
const workingDir = "/workspace"

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
		{Source: p.cfg.ShimDir, Target: path.Dir(execjournal.ContainerShim)},
		{Source: paths.Logs, Target: execjournal.ContainerLogs, Writable: true},
		{Source: paths.Ctl, Target: execjournal.ContainerCtl},
		{Source: paths.Out, Target: execjournal.ContainerOut, Writable: true},
	}
	for _, m := range p.sb.Spec.GetMounts() {
		mounts = append(mounts, dockerx.Mount{Source: m.GetSource(), Target: m.GetTarget(), Writable: m.GetWritable()})
	}
	return dockerx.ContainerSpec{
		Name: naming.Primary(p.rec.ID), Image: p.sb.Spec.GetImage(), Hostname: p.sb.Name,
		Entrypoint: []string{execjournal.ContainerShim, "init", "--default-user=" + p.image.User},
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
