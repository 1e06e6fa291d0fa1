package server

import (
	"os"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/internal/sandboxstate"
	"github.com/agbox/agbox/store"
)

// handles shows sandboxes to clients.
type handles struct {
	status         func(sandboxID string) string
	ports          func(sandboxID string) []*agboxv1.PublishedPort
	nameless       func(sandboxID string) bool
	secretProblems func(sandboxID string) []string
	diskWarnings   func(sb store.Sandbox) []string
	startWarning   func(sandboxID string) string
	networkProblem func() string
	engineRefuses  func(*agboxv1.CreateSpec, *storev1.Confinement) validate.Errors
	connected      func(sandboxID string) bool
	mainLogs       func(sandboxID string) (stdout, stderr string)
	rules          func() Rules
	defaultTimeout func() time.Duration
}

func (s *handles) handle(sb store.Sandbox, withSpec bool) *agboxv1.SandboxHandle {
	h := &agboxv1.SandboxHandle{
		SandboxId: sb.ID, Name: sb.Name, State: sb.State, LastEventSequence: sb.LastSequence,
		RequiredServices: sb.Spec.GetRequiredServices(), OptionalServices: sb.Spec.GetOptionalServices(),
		Labels: sb.Spec.GetLabels(), Image: sb.Spec.GetImage(),
		CreatedAt: timestamp(sb.CreatedAt), StateChangedAt: timestamp(sb.StateChangedAt),
		ErrorCode: sb.ErrorCode, ErrorMessage: sb.ErrorMessage,
		DesiredState: pendingState(sb), ActiveExecs: uint32(len(sb.ActiveExecs)), StatusMessage: s.statusMessage(sb),
		Services: services(sb), Restarts: sb.Progress.GetRestarts().GetCount(), Channel: s.path(sb), CreatedBy: sb.Desired.GetCaller(),
	}
	if sb.State == agboxv1.SandboxState_SANDBOX_STATE_READY {
		h.Ports = s.ports(sb.ID)
	}
	if len(sb.Spec.GetCommand()) > 0 {
		h.StdoutLogPath, h.StderrLogPath = s.mainLogs(sb.ID)
	}
	s.showLifetime(h, sb)
	if withSpec {
		accepted := sb.Desired.GetConfinement()
		h.Spec, h.SecurityProfile, h.DefaultMemoryBytes = sb.Spec, accepted.GetProfile(), accepted.GetMemoryLimitBytes()
		h.NetworkMode = networkMode(sb)
		if stdout, stderr := s.mainLogs(sb.ID); h.StdoutLogPath == "" && exists(stdout) { // the image's ENTRYPOINT wrote it
			h.StdoutLogPath, h.StderrLogPath = stdout, stderr
		}
		if sb.State != agboxv1.SandboxState_SANDBOX_STATE_DELETED {
			h.Warnings = slices.Concat(s.warnings(sb), s.securityWarnings(sb), s.networkWarnings(sb), s.runtimeWarnings(sb), s.secretWarnings(sb), s.diskWarnings(sb))
		}
	}
	return h
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// runtimeWarnings returns a sentence for what the runtime of a running sandbox can't do, and one about its start.
func (s *handles) runtimeWarnings(sb store.Sandbox) (list []string) {
	if sb.State != agboxv1.SandboxState_SANDBOX_STATE_READY {
		return nil
	}
	if why := s.startWarning(sb.ID); why != "" {
		list = append(list, why+`; "agbox logs" may show why, and entrypoint: skip in the spec avoids it`)
	}
	if !s.nameless(sb.ID) {
		return list
	}
	return append(list, "no host name resolves in this sandbox: its runtime does not reach the engine's DNS server; gVisor's runsc does with "+
		"--network=host among its arguments in the engine's configuration, from the next resume on")
}

func (s *handles) secretWarnings(sb store.Sandbox) []string {
	if len(hostfiles.SecretFiles(sb.Spec)) == 0 {
		return nil
	}
	return s.secretProblems(sb.ID)
}

// services returns all services of the spec with their state in this run, the required ones first.
func services(sb store.Sandbox) (out []*agboxv1.ServiceStatus) {
	required, optional := sb.Spec.GetRequiredServices(), sb.Spec.GetOptionalServices()
	for i, spec := range slices.Concat(required, optional) {
		out = append(out, serviceStatus(spec.GetName(), i < len(required), sb.Progress))
	}
	return out
}

func serviceStatus(name string, required bool, p *storev1.Progress) *agboxv1.ServiceStatus {
	svc := p.GetServices()[name]
	out := &agboxv1.ServiceStatus{Name: name, Required: required, Restarts: svc.GetRestarts().GetCount()}
	switch svc.GetMark() {
	case storev1.ServiceMark_SERVICE_MARK_READY:
		out.State = "READY"
	case storev1.ServiceMark_SERVICE_MARK_FAILED:
		out.State, out.ErrorCode, out.ErrorMessage = "FAILED", svc.GetErrorCode(), svc.GetErrorMessage()
	}
	return out
}

func (s *handles) statusMessage(sb store.Sandbox) string {
	switch {
	case sb.Corrupt:
		return "its stored record does not decode, so it is left alone; see the daemon's log"
	case sb.State == agboxv1.SandboxState_SANDBOX_STATE_DELETED:
		return ""
	}
	return s.status(sb.ID)
}

// pendingState returns the requested state while it is not reached, or "".
func pendingState(sb store.Sandbox) string {
	run := sb.Desired.GetRunState()
	switch sandboxstate.Goal(run) {
	case sb.State:
	case agboxv1.SandboxState_SANDBOX_STATE_DELETED:
		return "deleted"
	case agboxv1.SandboxState_SANDBOX_STATE_STOPPED:
		if sandboxstate.Accepts(sb.State, agboxv1.EventType_SANDBOX_STOPPED) {
			return "stopped"
		}
	case agboxv1.SandboxState_SANDBOX_STATE_PAUSED:
		if sandboxstate.Accepts(sb.State, agboxv1.EventType_SANDBOX_PAUSED) {
			return "paused"
		}
	}
	return ""
}

// nanoseconds returns nil for 0, which stands for "not known" in stored records.
func nanoseconds(ns int64) *timestamppb.Timestamp {
	if ns == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, ns))
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
