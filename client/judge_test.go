package client

import (
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestJudge(t *testing.T) {
	const (
		pending  = agboxv1.SandboxState_SANDBOX_STATE_PENDING
		ready    = agboxv1.SandboxState_SANDBOX_STATE_READY
		stopped  = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
		failed   = agboxv1.SandboxState_SANDBOX_STATE_FAILED
		paused   = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
		deleting = agboxv1.SandboxState_SANDBOX_STATE_DELETING
		deleted  = agboxv1.SandboxState_SANDBOX_STATE_DELETED
	)
	up, down := &agboxv1.ServiceStatus{Name: "db", State: "READY"}, &agboxv1.ServiceStatus{Name: "db", State: "FAILED", ErrorCode: "CONTAINER_DIED", ErrorMessage: "exit 1"}
	for name, tc := range map[string]struct {
		state   agboxv1.SandboxState
		desired string
		want    Condition
		service *agboxv1.ServiceStatus
		policy  string
		done    bool
		err     string
	}{
		"ready":                                    {state: ready, want: Ready, done: true},
		"ready, but being stopped":                 {state: ready, desired: "stopped", want: Ready},
		"stopped is not yet ready":                 {state: stopped, want: Ready},
		"ready, but being paused":                  {state: ready, desired: "paused", want: Ready},
		"being paused is not yet paused":           {state: ready, desired: "paused", want: Paused},
		"paused":                                   {state: paused, want: Paused, done: true},
		"paused, but being stopped":                {state: paused, desired: "stopped", want: Paused},
		"paused is not yet ready":                  {state: paused, want: Ready},
		"paused is not yet stopped":                {state: paused, want: Stopped},
		"paused, but being deleted":                {state: paused, desired: "deleted", want: Deleted},
		"stopped is paused no more":                {state: stopped, want: Paused, done: true, err: "sandbox abcd will not be paused: it is STOPPED"},
		"failed is never paused":                   {state: failed, want: Paused, done: true, err: "sandbox abcd will not be paused: it is FAILED"},
		"failed is what was waited for":            {state: failed, want: Failed, done: true},
		"ready may still fail":                     {state: ready, want: Failed},
		"what is deleted fails no more":            {state: deleting, want: Failed, done: true, err: "sandbox abcd will not be failed: it is DELETING"},
		"failed is never stopped":                  {state: failed, want: Stopped, done: true, err: "sandbox abcd will not be stopped: it is FAILED"},
		"deleting is not yet deleted":              {state: deleting, want: Deleted},
		"deleted":                                  {state: deleted, want: Deleted, done: true},
		"service without news":                     {state: ready, want: ServiceReady("db")},
		"service ready before the sandbox":         {state: pending, want: ServiceReady("db"), service: up, done: true},
		"service of a stopped sandbox":             {state: stopped, want: ServiceReady("db"), service: up},
		"service of a paused sandbox":              {state: paused, want: ServiceReady("db"), service: up},
		"service without a restart":                {state: ready, want: ServiceReady("db"), service: down, done: true, err: "sandbox abcd will not be service=db: the service failed (CONTAINER_DIED: exit 1)"},
		"service that its policy brings back":      {state: ready, want: ServiceReady("db"), service: down, policy: "always"},
		"service that is not in the spec":          {state: ready, want: ServiceReady("cache"), service: up, done: true, err: `sandbox abcd will not be service=cache: it has no service "cache"`},
		"service of a sandbox that is being gone":  {state: deleting, want: ServiceReady("db"), done: true, err: "sandbox abcd will not be service=db: it is DELETING"},
		"service of a sandbox that failed to come": {state: failed, want: ServiceReady("db"), service: up, done: true, err: "sandbox abcd will not be service=db: it is FAILED"},
	} {
		sb := &agboxv1.SandboxHandle{
			SandboxId: "abcd", State: tc.state, DesiredState: tc.desired,
			OptionalServices: []*agboxv1.ServiceSpec{{Name: "db", RestartPolicy: tc.policy}},
		}
		if tc.service != nil {
			sb.Services = append(sb.Services, tc.service)
		}
		done, err := judge(sb, tc.want)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if done != tc.done || text != tc.err {
			t.Errorf("%s: got %v, %q", name, done, text)
		}
	}
}
