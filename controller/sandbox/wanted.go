package sandbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/netrules"
)

// WantedOf returns the part of a spec that decisions depend on, with the defaults of the configuration and of the sandbox's accept.
func WantedOf(spec *agboxv1.CreateSpec, c *storev1.Confinement, s Settings) plan.Wanted {
	w := plan.Wanted{
		Main:     len(spec.GetCommand()) > 0,
		Confined: netrules.Confines(netrules.ModeOf(spec.GetNetwork(), c.GetNetworkMode()), spec.GetNetwork()),
		Copies:   len(spec.GetCopies()) > 0, Volumes: validate.HasVolumes(spec), Restart: plan.RestartPolicy(spec.GetRestartPolicy()), Limits: LimitsOf(spec, c, s),
	}
	for i, svc := range slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()) {
		w.Services = append(w.Services, plan.Service{
			Name: svc.GetName(), Required: i < len(spec.GetRequiredServices()), Hooks: len(svc.GetPostStartOnPrimary()),
			Healthcheck: hasHealthcheck(svc), HealthWait: healthWait(svc.GetHealthcheck(), s.HealthTimeout),
			Restart: plan.RestartPolicy(svc.GetRestartPolicy()), Limits: LimitsOf(svc, c, s),
		})
	}
	return w
}

func hasHealthcheck(svc *agboxv1.ServiceSpec) bool {
	test := svc.GetHealthcheck().GetTest()
	return len(test) > 0 && test[0] != "NONE"
}

// Docker's defaults for a healthcheck.
const (
	defaultInterval = 30 * time.Second
	defaultTimeout  = 30 * time.Second
	defaultRetries  = 3
)

// healthWait bounds the wait for the first healthy verdict: the time after which the engine itself gives up, and at most most.
func healthWait(h *agboxv1.HealthcheckConfig, most time.Duration) time.Duration {
	interval := cmp.Or(max(h.GetInterval().AsDuration(), 0), defaultInterval)
	timeout := cmp.Or(max(h.GetTimeout().AsDuration(), 0), defaultTimeout)
	each, retries := max(interval, timeout), cmp.Or(h.GetRetries(), defaultRetries)
	if each > most/time.Duration(retries+1) {
		return most
	}
	return min(h.GetStartPeriod().AsDuration()+time.Duration(retries+1)*each, most)
}

// Limited is what the specs of a sandbox and of a service have in common.
type Limited interface {
	GetCpuLimit() float64
	GetMemoryLimit() string
	GetPidsLimit() uint32
}

// LimitsOf returns the limits in the engine's units. The sizes of an accepted spec parse. The default memory limit is the one at the
// accept, so an update of another limit never bounds the memory of what runs.
func LimitsOf(spec Limited, c *storev1.Confinement, s Settings) plan.Limits {
	memory, _ := validate.MemoryBytes(spec.GetMemoryLimit())
	l := dockerx.Limits{
		NanoCPUs: int64(spec.GetCpuLimit() * 1e9), MemoryBytes: memory, Pids: int64(spec.GetPidsLimit()),
	}
	if l.MemoryBytes == 0 {
		l.MemoryBytes = c.GetMemoryLimitBytes()
	}
	if l.Pids == 0 {
		l.Pids = s.PidsLimit
	}
	return plan.Limits(l.Rounded())
}

// ServiceSpec returns the service of a spec with that name, or nil.
func ServiceSpec(spec *agboxv1.CreateSpec, name string) *agboxv1.ServiceSpec {
	for _, svc := range slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()) {
		if svc.GetName() == name {
			return svc
		}
	}
	return nil
}

// Settings is the part of the configuration that may change while the controller runs. Each pass reads it once.
type Settings = plan.Settings

// EngineRefuses returns the fields of a spec that the last observed engine cannot enforce: a limit is refused, never
// dropped. A disk limit is watched instead, by package disklimit. Before the first contact with an engine it refuses nothing; the create checks again.
func (r *Reconciler) EngineRefuses(spec *agboxv1.CreateSpec, confinement *storev1.Confinement) validate.Errors {
	info := r.o.Link.Info()
	if info.Version == "" {
		return nil
	}
	errs := refusals(spec, info)
	if info.OtherUser != 0 {
		errs = append(errs, validate.Error{Message: fmt.Sprintf("the engine is rootless and runs as user %d of the host, who can't reach the directories of agboxd: "+
			"run agboxd as that user", info.OtherUser)})
	}
	if confinement.GetMemoryLimitBytes() > 0 && !info.MemoryLimit && spec.GetMemoryLimit() == "" {
		errs = append(errs, validate.Error{
			Field: "memory_limit", Message: "memory_limit has a default, runtime.memory_limit, that cannot be honoured: the engine's kernel does not support it",
		})
	}
	mode := netrules.ModeOf(spec.GetNetwork(), confinement.GetNetworkMode())
	if confinement != nil && info.AsksFromHost && netrules.RulesNames(mode, spec) && len(confinement.GetDnsServers()) == 0 {
		errs = append(errs, validate.Error{
			Field: "network", Message: "network decides on names, but Docker 25 or newer resolves names for the containers of this sandbox from the host, past the policy: " +
				"create a new sandbox with this policy",
		})
	}
	return errs
}

const unfreezable = "the engine has no control groups, and can't freeze containers; for rootless Docker boot the host with cgroup version 2"

// FreezeRefusal says why the last observed engine can't freeze containers; empty: it can, or none was observed.
func (r *Reconciler) FreezeRefusal() string {
	if info := r.o.Link.Info(); info.Version != "" && !info.Freezes {
		return unfreezable
	}
	return ""
}

// refusals compares a spec with the capabilities of an engine.
func refusals(spec *agboxv1.CreateSpec, info dockerx.Info) (errs validate.Errors) {
	refuse := func(field, format string, args ...any) {
		errs = append(errs, validate.Error{Field: field, Message: field + " " + fmt.Sprintf(format, args...)})
	}
	if r := spec.GetRuntime(); r != "" && !slices.Contains(info.Runtimes, r) {
		refuse("runtime", "%q is not known to the Docker engine; it has %s", r, strings.Join(info.Runtimes, ", "))
	}
	if spec.GetGpus() != "" && !info.GPUs {
		refuse("gpus", "cannot be honoured: the Docker engine has no GPU support (the NVIDIA container toolkit is not set up)")
	}
	if spec.GetOnTimeout() == "pause" && !info.Freezes {
		refuse("on_timeout", "cannot be pause: %s. Write stop or delete", unfreezable)
	}
	refuseLimits(refuse, "", spec, info)
	for prefix, list := range map[string][]*agboxv1.ServiceSpec{
		"required_services": spec.GetRequiredServices(), "optional_services": spec.GetOptionalServices(),
	} {
		for _, svc := range list {
			at := fmt.Sprintf("%s[%s].", prefix, svc.GetName())
			refuseLimits(refuse, at, svc, info)
			if svc.GetHealthcheck().GetStartInterval().AsDuration() > 0 && !info.StartInterval {
				refuse(at+"healthcheck.start_interval", "needs Docker 25 (API 1.44); this engine has API %s: leave it out", info.APIVersion)
			}
		}
	}
	slices.SortFunc(errs, func(a, b validate.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

func refuseLimits(refuse func(field, format string, args ...any), at string, spec Limited, info dockerx.Info) {
	const why = "cannot be honoured: the engine's kernel does not support it"
	if spec.GetCpuLimit() > 0 && !info.CPULimit {
		refuse(at+"cpu_limit", why)
	}
	if spec.GetMemoryLimit() != "" && !info.MemoryLimit {
		refuse(at+"memory_limit", why)
	}
	if spec.GetPidsLimit() > 0 && !info.PidsLimit {
		refuse(at+"pids_limit", why)
	}
}
