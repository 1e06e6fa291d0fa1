package recovery

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/privilege"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// guessSpec builds a spec that describes the existing container. What the container does not show, such as copies, hooks
// and policies, is left out: none of it is repeated for a created sandbox.
func (r *rebuild) guessSpec(c dockerx.ContainerDetail) {
	r.guess("spec")
	s := &agboxv1.CreateSpec{
		Image: cmp.Or(c.Labels[naming.Template], c.ImageRef), Labels: userLabels(c.Labels), Envs: r.ownEnvs(c),
		Gpus: c.GPUs, Ports: r.ports(c), OptionalServices: r.guessServices(),
	}
	s.User, s.Command = initArgs(c.Entrypoint)
	if c.Runtime != "runc" { // the engines' usual default
		s.Runtime = c.Runtime
	}
	if c.WorkingDir != plan.WorkingDir {
		s.WorkingDir = c.WorkingDir
	}
	s.Security = guessSecurity(c)
	s.Volumes = guessVolumes(c)
	for _, m := range c.Mounts {
		if m.Volume != "" {
			continue
		}
		covers := slices.ContainsFunc(r.confinement.GetCovers(), func(c *storev1.Cover) bool { return c.GetTarget() == m.Target })
		pins := slices.ContainsFunc(r.confinement.GetPins(), func(p *storev1.Pin) bool { return p.GetTarget() == m.Target })
		if !covers && !pins && !slices.Contains(ownTargets, m.Target) {
			s.Mounts = append(s.Mounts, &agboxv1.MountSpec{Source: m.Source, Target: m.Target, Writable: m.Writable})
		}
	}
	slices.SortFunc(s.Mounts, func(a, b *agboxv1.MountSpec) int { return strings.Compare(a.GetTarget(), b.GetTarget()) })
	s.CpuLimit, s.MemoryLimit, s.PidsLimit = r.guessLimits(c.Limits)
	if c.DiskBytes > 0 {
		_, s.DiskLimit, _ = limitFields(dockerx.Limits{MemoryBytes: c.DiskBytes})
	}
	r.spec = s
}

// guessSecurity reads what a container has beyond its profile, or lacks; nil: nothing.
func guessSecurity(c dockerx.ContainerDetail) *agboxv1.SecuritySpec {
	s := &agboxv1.SecuritySpec{ReadOnlyRoot: c.ReadOnlyRoot}
	if c.Unconfined {
		s.Seccomp = "unconfined"
	}
	for _, arg := range c.Entrypoint {
		if arg == "--" {
			break
		}
		number, ok := strings.CutPrefix(arg, "--cap=")
		if name := privilege.Name(number); ok && name != "" {
			s.CapabilitiesAdd = append(s.CapabilitiesAdd, name)
		}
		if arg == "--new-privileges" {
			s.NoNewPrivileges = new(bool)
		}
	}
	if proto.Size(s) == 0 {
		return nil
	}
	return s
}

// guessVolumes reads the named volumes of a container. Others are of the image.
func guessVolumes(c dockerx.ContainerDetail) (volumes []*agboxv1.VolumeSpec) {
	for _, m := range c.Mounts {
		if _, name, ok := naming.ParseVolume(m.Volume); ok {
			volumes = append(volumes, &agboxv1.VolumeSpec{Name: name, Target: m.Target})
		}
	}
	slices.SortFunc(volumes, func(a, b *agboxv1.VolumeSpec) int { return strings.Compare(a.GetTarget(), b.GetTarget()) })
	return volumes
}

// initArgs parses the command line of the shim.
func initArgs(entrypoint []string) (user string, command []string) {
	for i, arg := range entrypoint {
		if arg == "--" {
			return user, slices.Clone(entrypoint[i+1:])
		}
		if u, ok := strings.CutPrefix(arg, "--user="); ok {
			user = u
		}
	}
	return user, nil
}

func (r *rebuild) guessLimits(l dockerx.Limits) (cpus float64, memory string, pids uint32) {
	cpus, memory, pids = limitFields(l)
	if l.MemoryBytes == r.confinement.GetMemoryLimitBytes() {
		memory = ""
	}
	if l.Pids == r.in.PidsLimit {
		pids = 0
	}
	return cpus, memory, pids
}

// ownEnvs returns the variables that neither agboxd nor the image set. Without the image it cannot exclude the image's.
func (r *rebuild) ownEnvs(c dockerx.ContainerDetail) map[string]string {
	envs := envMap(c.Env)
	for _, k := range []string{"HOST_UID", "HOST_GID", "SSH_AUTH_SOCK"} {
		delete(envs, k)
	}
	image, ok := r.in.Images[c.Image]
	if !ok {
		r.guess("envs")
	}
	inherited := envMap(image.Env)
	maps.DeleteFunc(envs, func(k, v string) bool {
		was, ok := inherited[k]
		return ok && was == v
	})
	return envs
}

// ports are only shown while the container runs, without who chose the host port: it is chosen by the engine at the next start.
func (r *rebuild) ports(c dockerx.ContainerDetail) []*agboxv1.PortSpec {
	r.guess("ports")
	var ports []*agboxv1.PortSpec
	for _, p := range c.Ports {
		ports = append(ports, &agboxv1.PortSpec{ContainerPort: uint32(p.ContainerPort), Protocol: p.Protocol})
	}
	return ports
}

// guessServices makes all services optional: no start waits for one, and its failure does not fail the sandbox.
func (r *rebuild) guessServices() []*agboxv1.ServiceSpec {
	var services []*agboxv1.ServiceSpec
	for _, c := range r.p.services {
		s := &agboxv1.ServiceSpec{
			Name: serviceName(c), Image: cmp.Or(c.Labels[naming.Template], c.ImageRef), Envs: r.ownEnvs(c), Ports: r.ports(c),
			Healthcheck: healthcheck(c.Healthcheck), Command: slices.Clone(c.Cmd), User: c.User, WorkingDir: c.WorkingDir,
			Volumes: guessVolumes(c),
		}
		s.CpuLimit, s.MemoryLimit, s.PidsLimit = r.guessLimits(c.Limits)
		services = append(services, s)
		r.guess("services")
	}
	return services
}
