package recovery

import (
	"slices"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

const (
	foreignPrimary = "its ctl mount is not in this daemon's data directory"
	noPrimary      = "no primary container of this daemon has its sandbox ID and instance"
	oddName        = "it has a sandbox's labels but not its name"
	badID          = "its label is not a valid sandbox ID"
)

// claimsPrimary reports whether a container is labelled as a primary, with any name.
func claimsPrimary(c dockerx.Container) bool {
	return c.Labels[naming.Component] == naming.ComponentPrimary
}

// isPrimary reports whether a container has the labels and name of the primary of its sandbox.
func isPrimary(c dockerx.Container) bool {
	return claimsPrimary(c) && c.Name == naming.Primary(c.Labels[naming.SandboxID])
}

func isService(c dockerx.Container) bool {
	name := c.Labels[naming.ServiceName]
	return c.Labels[naming.Component] == naming.ComponentService && name != "" &&
		c.Name == naming.Service(c.Labels[naming.SandboxID], name)
}

// owns reports whether a primary's ctl mount has the source that this daemon uses. No other user can create such a mount: the
// directory is accessible by this daemon only.
func owns(ctl string, primary dockerx.ContainerDetail) bool {
	for _, m := range primary.Mounts {
		if m.Target == execjournal.ContainerCtl {
			return m.Source == ctl
		}
	}
	return false
}

// parts are the containers of one sandbox that belong to this daemon.
type parts struct {
	primary  *dockerx.ContainerDetail
	services []dockerx.ContainerDetail
	network  bool
	// instance is the one in their labels.
	instance string
	skipped  []Skipped
}

// claim separates this daemon's objects from the rest. A sandbox without any primary is this daemon's if its objects name a
// known instance and its directory exists: the directory is created before any object and removed after the last one.
func (f Found) claim(instances map[string]bool) (p parts, ok bool) {
	for i, c := range f.Containers {
		if isPrimary(c.Container) && owns(f.Ctl, c) {
			p.primary, p.instance = &f.Containers[i], c.Labels[naming.Instance]
		}
	}
	orphan := f.RunDir && !slices.ContainsFunc(f.Containers, func(c dockerx.ContainerDetail) bool { return claimsPrimary(c.Container) })
	mine := func(labels map[string]string) bool {
		instance := labels[naming.Instance]
		if p.primary != nil {
			return instance == p.instance
		}
		return orphan && instance != "" && instances[instance]
	}
	for i, c := range f.Containers {
		switch {
		case p.primary == &f.Containers[i]:
		case isService(c.Container) && mine(c.Labels):
			p.services = append(p.services, c)
		default:
			p.skip(c.Container, p.primary != nil)
		}
	}
	for _, n := range f.Networks {
		if mine(n.Labels) {
			p.network = true
			continue
		}
		p.skipped = append(p.skipped, Skipped{Kind: "network", ID: n.ID, Name: n.Name, SandboxID: f.ID, Reason: noPrimary})
	}
	return p, p.primary != nil || len(p.services) > 0 || p.network
}

func (p *parts) skip(c dockerx.Container, hasPrimary bool) {
	why := noPrimary
	switch {
	case isPrimary(c):
		why = foreignPrimary
	case !isService(c) && hasPrimary:
		why = oddName
	}
	p.skipped = append(p.skipped, skippedContainer(c, why))
}

func skippedContainer(c dockerx.Container, why string) Skipped {
	return Skipped{Kind: "container", ID: c.ID, Name: c.Name, SandboxID: c.Labels[naming.SandboxID], Reason: why}
}
