package validate

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Bounds of the settings of a container.
const (
	minCPUs, maxCPUs = 0.01, 1024
	// maxPids is the kernel's PID_MAX_LIMIT.
	minPids, maxPids = 64, 4 << 20
	maxUserBytes     = 64
	// maxUserID is the engine's.
	maxUserID = math.MaxInt32
)

// container has the settings that the primary and the services share.
type container interface {
	GetCommand() []string
	GetUser() string
	GetWorkingDir() string
	GetPorts() []*agboxv1.PortSpec
	GetCpuLimit() float64
	GetMemoryLimit() string
	GetPidsLimit() uint32
	GetRestartPolicy() string
	GetPullPolicy() string
}

// checkContainer checks the settings of the container whose fields begin with prefix.
func checkContainer(errs *Errors, prefix string, c container) {
	checkOptional(errs, prefix+"command", c.GetCommand())
	checkUser(errs, prefix+"user", c.GetUser())
	checkWorkingDir(errs, prefix+"working_dir", c.GetWorkingDir())
	checkPorts(errs, prefix+"ports", c.GetPorts())
	cpus, pids := c.GetCpuLimit(), c.GetPidsLimit()
	inRange := cpus >= minCPUs && cpus <= maxCPUs // NaN is in no range
	errs.addIf(cpus != 0 && !inRange, prefix+"cpu_limit", "must be 0 (no limit) or %v to %v CPUs", minCPUs, maxCPUs)
	checkSize(errs, prefix+"memory_limit", c.GetMemoryLimit())
	outside := pids != 0 && (pids < minPids || pids > maxPids)
	errs.addIf(outside, prefix+"pids_limit", "must be 0 (the daemon's default) or %d to %d", minPids, maxPids)
	checkWord(errs, prefix+"restart_policy", c.GetRestartPolicy(), "never", "on-failure", "always")
	checkWord(errs, prefix+"pull_policy", c.GetPullPolicy(), "if-not-present", "always", "never")
}

// runtimePattern has no slash: with one, engines take the name for the path of a program.
var runtimePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

var (
	madeUserPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)
	ownerPattern    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
)

const ownerRule = `%s is not the name of an owner: 1 to 63 ASCII letters, digits, "_", "." and "-", the first and last a letter or digit`

// GatewayKey checks the request for a key of a gateway; its owner has been filled in.
func GatewayKey(req *agboxv1.CreateGatewayKeyRequest) (errs Errors) {
	errs.addIf(!ownerPattern.MatchString(req.GetOwner()), "owner", ownerRule, short(req.GetOwner()))
	return errs
}

// checkPrimary checks the settings that only the primary has.
func checkPrimary(errs *Errors, spec *agboxv1.CreateSpec) {
	checkSize(errs, "disk_limit", spec.GetDiskLimit())
	_, _, err := GPUs(spec.GetGpus())
	errs.addIf(err != nil, "gpus", "%v", err)
	name := spec.GetRuntime()
	errs.addIf(name != "" && !runtimePattern.MatchString(name), "runtime", `%s is not the name of a runtime: `+
		`1 to 128 ASCII letters, digits, "_", "." and "-", the first a letter or digit`, short(name))
	checkWord(errs, "on_log_limit", spec.GetOnLogLimit(), "drop", "kill")
	checkSecurity(errs, spec.GetSecurity())
	user := spec.GetDefaultUser()
	errs.addIf(user != "" && !madeUserPattern.MatchString(user), "default_user", `%s is not the name of a user: `+
		`1 to 32 of lowercase ASCII letters, digits, "-" and "_", the first a letter`, short(user))
	errs.addIf(user == "root", "default_user", "root exists in every image: write it as user")
	if spec.GetGateway() != nil {
		owner := spec.GetGateway().GetOwner()
		errs.addIf(!ownerPattern.MatchString(owner), "gateway.owner", ownerRule, short(owner))
	}
	checkWord(errs, "entrypoint", spec.GetEntrypoint(), "auto", "run", "skip")
}

// checkWord checks a field that takes one of a few words, or none for its default.
func checkWord(errs *Errors, field, word string, known ...string) {
	if word == "" || slices.Contains(known, word) {
		return
	}
	errs.add(field, `%s is not known: write "%s"`, short(word), strings.Join(known, `", "`))
}

func checkSize(errs *Errors, field, text string) {
	_, err := MemoryBytes(text)
	errs.addIf(err != nil, field, "%v", err)
}

func checkWorkingDir(errs *Errors, field, dir string) {
	if dir == "" || !checkPath(errs, field, dir) {
		return
	}
	for _, own := range ownTargets {
		if within(dir, own) {
			errs.add(field, "%s lies in %s, which is agboxd's own", short(dir), own)
			return
		}
	}
}

// userPattern is wider than what useradd makes: images bring names of other directories.
var userPattern = regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9_.@+-]*\$?$`)

func checkUser(errs *Errors, field, user string) {
	if user == "" {
		return
	}
	name, group, both := strings.Cut(user, ":")
	parts := []string{name}
	if both {
		parts = append(parts, group)
	}
	for _, part := range parts {
		if len(part) > maxUserBytes || !userPattern.MatchString(part) {
			errs.add(field, `%s must be "name", "uid", "name:group" or "uid:gid", each at most %d bytes, not beginning with "-"`,
				short(user), maxUserBytes)
			return
		}
		if strings.Trim(part, "0123456789") != "" {
			continue
		}
		if id, err := strconv.ParseUint(part, 10, 32); err != nil || id > maxUserID {
			errs.add(field, "%s has a number beyond %d", short(user), maxUserID)
			return
		}
	}
}

const (
	maxPorts = 128
	maxPort  = 65535
)

// port is one end of a published port.
type port struct {
	number   uint32
	protocol string
}

// checkPorts checks the ports of one container.
func checkPorts(errs *Errors, field string, ports []*agboxv1.PortSpec) {
	first := map[port]string{}
	checkEach(errs, field, ports, maxPorts, func(at string, p *agboxv1.PortSpec) {
		n := p.GetContainerPort()
		errs.addIf(n < 1 || n > maxPort, at+".container_port", "must be 1 to %d", maxPort)
		errs.addIf(p.GetHostPort() > maxPort, at+".host_port", "must be 0 (the engine chooses) or 1 to %d", maxPort)
		checkWord(errs, at+".protocol", p.GetProtocol(), "tcp", "udp")
		key := port{p.GetContainerPort(), p.GetProtocol()}
		if other, twice := first[key]; twice {
			errs.add(at+".container_port", "%d/%s is published by %s already", key.number, key.protocol, other)
			return
		}
		first[key] = at
	})
}

// checkHostPorts checks that no two containers ask for the same port of the host.
func checkHostPorts(errs *Errors, spec *agboxv1.CreateSpec) {
	first := map[port]string{}
	check := func(prefix string, ports []*agboxv1.PortSpec) {
		for i, p := range ports[:min(len(ports), maxPorts)] {
			at := fmt.Sprintf("%sports[%d]", prefix, i)
			key := port{p.GetHostPort(), p.GetProtocol()}
			if other, twice := first[key]; twice && key.number != 0 {
				errs.add(at+".host_port", "%d/%s is already published by %s", key.number, key.protocol, other)
				continue
			}
			first[key] = at
		}
	}
	check("", spec.GetPorts())
	for _, s := range services(spec) {
		check(s.path+".", s.spec.GetPorts())
	}
}
