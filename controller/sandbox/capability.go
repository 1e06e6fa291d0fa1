package sandbox

import (
	"fmt"
	"slices"
	"strings"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/dockerx"
)

// EngineRefuses returns the fields of a spec that the last observed engine cannot enforce: a limit is refused, never dropped. Before the
// first contact with an engine it refuses nothing; the create checks again.
func (r *Reconciler) EngineRefuses(spec *agboxv1.CreateSpec, confinement *storev1.Confinement) validate.Errors {
	info := r.o.Link.Info()
	if info.Version == "" {
		return nil
	}
	errs := refusals(spec, info)
	if confinement.GetMemoryLimitBytes() > 0 && !info.MemoryLimit && spec.GetMemoryLimit() == "" {
		errs = append(errs, validate.Error{
			Field: "memory_limit", Message: "memory_limit has a default, runtime.memory_limit, that cannot be honoured: the engine's kernel does not support it",
		})
	}
	return errs
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
	if spec.GetDiskLimit() != "" && !info.DiskLimit {
		refuse("disk_limit", "cannot be honoured: the engine's storage (%s) does not bound the size of a container", info.StorageDriver)
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
