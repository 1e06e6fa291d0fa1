package validate

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

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
		if required {
			errs.add(field, `is required: the service must be healthy before the sandbox starts; write test: ["CMD", program, args...]`)
		}
		return
	}
	checkTest(errs, field+".test", hc.GetTest(), required)
	for _, d := range []struct {
		name  string
		value *durationpb.Duration
	}{
		{"interval", hc.GetInterval()},
		{"timeout", hc.GetTimeout()},
		{"start_period", hc.GetStartPeriod()},
		{"start_interval", hc.GetStartInterval()},
	} {
		checkProbe(errs, field+"."+d.name, d.value)
	}
	if hc.GetRetries() > maxRetries {
		errs.add(field+".retries", "must be 0 (the engine's default) or 1 to %d", maxRetries)
	}
}

// checkTest checks a test. An optional service may leave it to its image and set the times only.
func checkTest(errs *Errors, field string, test []string, required bool) {
	const forms = `["CMD", program, args...] or ["CMD-SHELL", command line]`
	if len(test) == 0 {
		if required {
			errs.add(field, "is required: %s", forms)
		}
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

func checkProbe(errs *Errors, field string, d *durationpb.Duration) {
	if d == nil || d.CheckValid() == nil && (d.AsDuration() == 0 || d.AsDuration() >= minProbe && d.AsDuration() <= maxProbe) {
		return
	}
	errs.add(field, "must be 0 (the engine's default) or a duration from %v to %v", minProbe, maxProbe)
}
