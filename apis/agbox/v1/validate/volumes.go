package validate

import (
	"regexp"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	maxVolumes    = 32
	maxVolumeName = 63
)

// volumePattern suits the engine, of whose name for the volume this is the last part.
var volumePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]*$`)

func isVolumeName(name string) bool {
	return len(name) <= maxVolumeName && volumePattern.MatchString(name)
}

// volumes checks the volumes of the container whose fields begin with prefix, and adds their targets as far as they are valid.
func (t *targets) volumes(errs *Errors, prefix string, volumes []*agboxv1.VolumeSpec) {
	seen := map[string]bool{}
	checkEach(errs, prefix+"volumes", volumes, maxVolumes, func(at string, v *agboxv1.VolumeSpec) {
		name := v.GetName()
		if isVolumeName(name) {
			at = prefix + "volumes[" + name + "]"
		}
		checkVolumeName(errs, at+".name", name)
		errs.addIf(seen[name], at+".name", "is a duplicate volume name: a container mounts a volume at one target")
		seen[name] = true
		one := target{path: v.GetTarget(), owner: at, field: at + ".target"}
		if !checkPath(errs, one.field, one.path) {
			return
		}
		if why := refusedMount(one.path); why != "" {
			errs.add(one.field, "%s %s", short(one.path), why)
			return
		}
		*t = append(*t, one)
	})
}

func checkVolumeName(errs *Errors, field, name string) {
	errs.addIf(!isVolumeName(name), field,
		`%s must be 1 to %d lowercase ASCII letters, digits, "-", "_" and ".", the first a letter or digit`, short(name), maxVolumeName)
}

// NameForVolumes checks that a sandbox with volumes has a name.
func NameForVolumes(name string, spec *agboxv1.CreateSpec) (errs Errors) {
	if name != "" {
		return nil
	}
	const why = "belong to the name of a sandbox, and this one has none: give it a name"
	errs.addIf(len(spec.GetVolumes()) > 0, "volumes", why)
	for _, s := range services(spec) {
		errs.addIf(len(s.spec.GetVolumes()) > 0, s.path+".volumes", why)
	}
	return errs
}

// HasVolumes reports whether a container of the sandbox mounts a named volume.
func HasVolumes(spec *agboxv1.CreateSpec) bool { return len(NameForVolumes("", spec)) > 0 }

// RemoveVolume checks a request to remove a volume.
func RemoveVolume(req *agboxv1.RemoveVolumeRequest) (errs Errors) {
	errs.addIf(req.GetSandboxName() == "", "sandbox_name", "is required")
	checkVolumeName(&errs, "volume_name", req.GetVolumeName())
	return errs
}
