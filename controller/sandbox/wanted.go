package sandbox

import (
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
)

// WantedOf returns the part of a spec that decisions depend on, with the defaults of the configuration and of the sandbox's accept.
func WantedOf(spec *agboxv1.CreateSpec, c *storev1.Confinement, s Settings) plan.Wanted {
	w := plan.Wanted{
		Main:   len(spec.GetCommand()) > 0,
		Copies: len(spec.GetCopies()) > 0, Restart: plan.RestartPolicy(spec.GetRestartPolicy()), Limits: LimitsOf(spec, c, s),
	}
	for _, svc := range spec.GetRequiredServices() {
		w.Services = append(w.Services, wantedService(svc, c, s, true))
	}
	for _, svc := range spec.GetOptionalServices() {
		w.Services = append(w.Services, wantedService(svc, c, s, false))
	}
	return w
}

func wantedService(svc *agboxv1.ServiceSpec, c *storev1.Confinement, s Settings, required bool) plan.Service {
	return plan.Service{
		Name: svc.GetName(), Required: required, Hooks: len(svc.GetPostStartOnPrimary()),
		Healthcheck: hasHealthcheck(svc), HealthWait: healthWait(svc.GetHealthcheck(), s.HealthTimeout),
		Restart: plan.RestartPolicy(svc.GetRestartPolicy()), Limits: LimitsOf(svc, c, s),
	}
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
	interval, timeout, retries := defaultInterval, defaultTimeout, uint32(defaultRetries)
	if d := h.GetInterval().AsDuration(); d > 0 {
		interval = d
	}
	if d := h.GetTimeout().AsDuration(); d > 0 {
		timeout = d
	}
	if h.GetRetries() > 0 {
		retries = h.GetRetries()
	}
	each := max(interval, timeout)
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
	for _, list := range [][]*agboxv1.ServiceSpec{spec.GetRequiredServices(), spec.GetOptionalServices()} {
		for _, svc := range list {
			if svc.GetName() == name {
				return svc
			}
		}
	}
	return nil
}
