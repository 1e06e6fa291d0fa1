package recovery

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

// makeSpec reads the spec from the label, and fields that the label lacks from the containers.
func (r *rebuild) makeSpec() {
	slices.SortFunc(r.p.services, func(a, b dockerx.ContainerDetail) int { return strings.Compare(serviceName(a), serviceName(b)) })
	r.Source = FromInspect
	c := r.p.primary
	if c == nil {
		r.spec = &agboxv1.CreateSpec{OptionalServices: r.guessServices()}
		for _, s := range r.p.services {
			r.spec.Labels = userLabels(s.Labels)
		}
		r.guess("spec", "name")
		return
	}
	var err error
	if r.confinement, err = plan.ParseConfinementLabel(c.Labels[naming.Confinement]); err != nil {
		r.guess("confinement")
	}
	spec, err := plan.ParseSpecLabel(c.Labels[naming.Spec])
	if err != nil {
		r.guessSpec(*c)
		return
	}
	r.Source, r.spec = FromLabels, spec
	r.fillEnvs(spec.GetEnvs(), c, "envs")
	r.toolMounts(*c)
	if observed := r.limits(spec, c.Limits); observed {
		spec.CpuLimit, spec.MemoryLimit, spec.PidsLimit = limitFields(c.Limits)
	}
	for _, svc := range slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()) {
		r.fillService(svc)
	}
	if known, hash := plan.SpecHash(spec), c.Labels[naming.SpecHash]; hash != known && sameVersion(hash, known) && !slices.ContainsFunc(r.Defaulted, isEnvs) {
		r.guess("spec") // a fixed property differs from the label
	}
}

func sameVersion(a, b string) bool {
	va, _, _ := strings.Cut(a, ":")
	vb, _, _ := strings.Cut(b, ":")
	return va == vb
}

func isEnvs(field string) bool { return strings.HasSuffix(field, "envs") }

func (r *rebuild) fillService(svc *agboxv1.ServiceSpec) {
	i := slices.IndexFunc(r.p.services, func(c dockerx.ContainerDetail) bool { return serviceName(c) == svc.GetName() })
	field := fmt.Sprintf("services[%s].envs", svc.GetName())
	if i < 0 {
		r.fillEnvs(svc.GetEnvs(), nil, field)
		return
	}
	c := &r.p.services[i]
	r.fillEnvs(svc.GetEnvs(), c, field)
	if r.limits(svc, c.Limits) {
		svc.CpuLimit, svc.MemoryLimit, svc.PidsLimit = limitFields(c.Limits)
	}
}

// fillEnvs sets the values of the label's keys from the container.
func (r *rebuild) fillEnvs(envs map[string]string, c *dockerx.ContainerDetail, field string) {
	have := map[string]string{}
	if c != nil {
		have = envMap(c.Env)
	}
	for k := range envs {
		v, ok := have[k]
		if !ok {
			r.guess(field)
		}
		envs[k] = v
	}
}

func envMap(list []string) map[string]string {
	m := make(map[string]string, len(list))
	for _, e := range list {
		k, v, _ := strings.Cut(e, "=")
		m[k] = v
	}
	return m
}

// limited is the part that the specs of sandbox and service have in common.
type limited interface {
	GetCpuLimit() float64
	GetMemoryLimit() string
	GetPidsLimit() uint32
}

// limits reports whether the container's limits differ from the spec: an update changed them.
func (r *rebuild) limits(spec limited, have dockerx.Limits) (observed bool) {
	memory, _ := validate.MemoryBytes(spec.GetMemoryLimit())
	want := dockerx.Limits{NanoCPUs: int64(spec.GetCpuLimit() * 1e9), MemoryBytes: memory, Pids: int64(spec.GetPidsLimit())}
	if want.MemoryBytes == 0 {
		want.MemoryBytes = r.confinement.GetMemoryLimitBytes()
	}
	if want.Pids == 0 {
		want.Pids = r.in.PidsLimit
	}
	return want.Rounded() != have.Rounded()
}

func limitFields(l dockerx.Limits) (cpus float64, memory string, pids uint32) {
	if l.MemoryBytes > 0 {
		memory = strconv.FormatInt(l.MemoryBytes, 10)
	}
	return float64(l.NanoCPUs) / 1e9, memory, uint32(min(max(l.Pids, 0), 4<<20))
}

// ownTargets are the targets of the mounts that every primary has.
var ownTargets = []string{
	strings.TrimSuffix(execjournal.ContainerShim, "/agbox-shim"), execjournal.ContainerCtl, execjournal.ContainerOut, execjournal.ContainerLogs,
}

// toolMounts reads the mounts of the spec's built-in tools from the container.
func (r *rebuild) toolMounts(c dockerx.ContainerDetail) {
	for _, tool := range validate.Tools() {
		if !slices.Contains(r.spec.GetBuiltinTools(), tool.Name) {
			continue
		}
		for _, p := range tool.Paths {
			i := slices.IndexFunc(c.Mounts, func(m dockerx.Mount) bool { return m.Target == p.Target })
			if i >= 0 {
				m := c.Mounts[i]
				r.tools = append(r.tools, &storev1.ToolMount{Tool: tool.Name, Source: m.Source, Target: m.Target, Writable: m.Writable})
			}
		}
	}
}

// name returns the container's host name, unless the engine chose it.
func (r *rebuild) name() string {
	c := r.p.primary
	switch {
	case c == nil:
		return ""
	case c.Hostname != "" && strings.HasPrefix(c.ID, c.Hostname):
		return ""
	case validate.Name(c.Hostname) != nil:
		r.guess("name")
		return ""
	}
	return c.Hostname
}

func userLabels(labels map[string]string) map[string]string {
	user := map[string]string{}
	for k, v := range labels {
		if key, ok := strings.CutPrefix(k, naming.UserPrefix); ok {
			user[key] = v
		}
	}
	return user
}

func serviceName(c dockerx.ContainerDetail) string { return c.Labels[naming.ServiceName] }

func healthcheck(h *dockerx.Healthcheck) *agboxv1.HealthcheckConfig {
	if h == nil || len(h.Test) == 0 {
		return nil
	}
	return &agboxv1.HealthcheckConfig{
		Test: h.Test, Retries: uint32(max(h.Retries, 0)), Interval: positive(h.Interval), Timeout: positive(h.Timeout),
		StartPeriod: positive(h.StartPeriod), StartInterval: positive(h.StartInterval),
	}
}

// positive returns nil for a duration that is not set.
func positive(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(d)
}
