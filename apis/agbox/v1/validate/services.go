package validate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	// maxServiceName is the most characters of a label of DNS.
	maxServiceName = 63
	// maxServices is what a /25 holds with room for the primary, and every subnet pool holds a /25.
	maxServices = 100
	maxHooks    = 64
)

var (
	// hostNames are in /etc/hosts of every container, which comes before DNS.
	hostNames = []string{"localhost", "ip6-localhost", "ip6-loopback", "ip6-localnet", "ip6-mcastprefix", "ip6-allnodes", "ip6-allrouters"}
	// servicePattern has a letter or a digit, since "." and ".." are no names.
	servicePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]*[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	// addressPattern is what resolvers take for an address without asking DNS: "10" is 0.0.0.10.
	addressPattern = regexp.MustCompile(`(?i)^([0-9]+|0x[0-9a-f]*)(\.([0-9]+|0x[0-9a-f]*))*$`)
)

// service is a service with its path: "required_services[db]", or the index where the name would mislead.
type service struct {
	spec     *agboxv1.ServiceSpec
	path     string
	required bool
}

// services returns the required and then the optional services.
func services(spec *agboxv1.CreateSpec) []service {
	var all []service
	taken := map[string]bool{}
	add := func(field string, list []*agboxv1.ServiceSpec, required bool) {
		for i, s := range list {
			key := s.GetName()
			if taken[key] || !isServiceName(key) {
				key = fmt.Sprint(i)
			}
			taken[s.GetName()] = true
			all = append(all, service{spec: s, path: field + "[" + key + "]", required: required})
		}
	}
	add("required_services", spec.GetRequiredServices(), true)
	add("optional_services", spec.GetOptionalServices(), false)
	return all
}

func checkServices(errs *Errors, spec *agboxv1.CreateSpec) {
	if n := len(spec.GetRequiredServices()) + len(spec.GetOptionalServices()); n > maxServices {
		errs.add("required_services", "and optional_services have %d entries together; the limit is %d", n, maxServices)
		return
	}
	first := map[string]string{}
	for _, s := range services(spec) {
		checkServiceName(errs, s, first)
		checkImage(errs, s.path+".", s.spec.GetImage())
		checkEnvs(errs, s.path+".envs", s.spec.GetEnvs())
		checkHealthcheck(errs, s.path+".healthcheck", s.spec.GetHealthcheck(), s.required)
		checkHooks(errs, s)
		checkContainer(errs, s.path+".", s.spec)
		var all targets
		all.volumes(errs, s.path+".", s.spec.GetVolumes())
		if len(s.spec.GetSecrets()) > 0 {
			all = append(all, target{path: ServiceSecrets, owner: s.path + ".secrets", field: s.path + ".secrets"})
			for _, v := range all {
				errs.addIf(v.path != ServiceSecrets && within(v.path, ServiceSecrets), v.field, "%s lies in %s, where the secrets are", short(v.path), ServiceSecrets)
			}
		}
		all.check(errs)
		var secrets targets
		secrets.secrets(errs, s.path+".", s.spec.GetSecrets(), refusedServiceSecret)
		secrets.check(errs)
	}
}

func isServiceName(name string) bool {
	return len(name) <= maxServiceName && servicePattern.MatchString(name)
}

// checkServiceName checks the name as the DNS name that it becomes. first has the paths of the names before it.
func checkServiceName(errs *Errors, s service, first map[string]string) {
	name, field := s.spec.GetName(), s.path+".name"
	switch other, twice := first[name]; {
	case name == "":
		errs.add(field, "is empty: service name is required")
	case !isServiceName(name):
		errs.add(field, `%s must be 1 to %d ASCII letters, digits, "-", "_" and ".", one of them a letter or digit`, short(name), maxServiceName)
	case slices.Contains(hostNames, strings.ToLower(name)):
		errs.add(field, "%s stands for the container itself in every container", short(name))
	case addressPattern.MatchString(name):
		errs.add(field, "%s looks like an IP address: add a letter", short(name))
	case twice:
		errs.add(field, "is a duplicate service name: %s has the name %s", other, short(name))
	default:
		first[name] = s.path
	}
}

// NameOfService checks that no service has the sandbox's name, which is the host name of the primary: there, the name
// would lead to the primary itself. An empty name is valid.
func NameOfService(name string, spec *agboxv1.CreateSpec) (errs Errors) {
	for _, s := range services(spec) {
		errs.addIf(name != "" && strings.EqualFold(s.spec.GetName(), name), s.path+".name", "%s is the name of the sandbox as well", short(name))
	}
	return errs
}

func checkHooks(errs *Errors, s service) {
	hooks, field := s.spec.GetPostStartOnPrimary(), s.path+".post_start_on_primary"
	if len(hooks) > 0 && !s.required {
		errs.add(field, "is for required services only: nothing waits for an optional one")
		return
	}
	checkEach(errs, field, hooks, maxHooks, func(at, line string) {
		errs.addIf(strings.TrimSpace(line) == "", at, "must not be empty")
		checkArg(errs, at, line)
	})
}

const (
	// minProbe is the engine's smallest duration.
	minProbe   = time.Millisecond
	maxProbe   = 24 * time.Hour
	maxRetries = 1000
)

// checkHealthcheck checks the healthcheck of a service. Nothing but the outcome of its own test can tell that a
// required service is ready, so it may neither be left to the image nor be switched off.
func checkHealthcheck(errs *Errors, field string, hc *agboxv1.HealthcheckConfig, required bool) {
	if hc == nil {
		errs.addIf(required, field, `is required: a required service must define healthcheck; write test: ["CMD", program, args...]`)
		return
	}
	checkTest(errs, field+".test", hc.GetTest(), required)
	checkProbe(errs, field+".interval", hc.GetInterval())
	checkProbe(errs, field+".timeout", hc.GetTimeout())
	checkProbe(errs, field+".start_period", hc.GetStartPeriod())
	checkProbe(errs, field+".start_interval", hc.GetStartInterval())
	errs.addIf(hc.GetRetries() > maxRetries, field+".retries", "must be 0 (the engine's default) or 1 to %d", maxRetries)
}

func checkProbe(errs *Errors, field string, d *durationpb.Duration) {
	broken := !lasts(d, minProbe, maxProbe) && !isZero(d)
	errs.addIf(broken, field, "must be 0 (the engine's default) or a duration from %v to %v", minProbe, maxProbe)
}

// checkTest checks a test. An optional service may leave it to its image and set the times only.
func checkTest(errs *Errors, field string, test []string, required bool) {
	const forms = `["CMD", program, args...] or ["CMD-SHELL", command line]`
	if len(test) == 0 {
		errs.addIf(required, field, "is required: %s", forms)
		return
	}
	switch kind := test[0]; {
	case kind == "NONE" && required:
		errs.add(field, "must not be NONE: a required service must be healthy before the sandbox starts")
	case kind == "NONE" && len(test) > 1:
		errs.add(field, "must be NONE alone, or %s", forms)
	case kind != "NONE" && kind != "CMD" && kind != "CMD-SHELL":
		errs.add(field+"[0]", "%s is not known: write %s", short(kind), forms)
	case kind == "CMD-SHELL" && len(test) > 2:
		errs.add(field, "has %d words after CMD-SHELL: the command line is one", len(test)-1)
	case kind != "NONE" && (len(test) == 1 || strings.TrimSpace(test[1]) == ""):
		errs.add(field, "names no command: write %s", forms)
	}
	for i, arg := range test {
		checkArg(errs, fmt.Sprintf("%s[%d]", field, i), arg)
	}
}
