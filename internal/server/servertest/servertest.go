// Package servertest has the dependencies of a server for tests.
package servertest

import (
	"context"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

// Deps returns the dependencies of a server of st without a controller: nothing waits, nothing is refused, and nothing can be explained.
func Deps(st server.Store) server.Deps {
	noLogs := func(string) (string, string) { return "", "" }
	quiet := func() string { return "" }
	return server.Deps{
		Store: st, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Logs: func(string, string) (string, string) { return "", "" }, MainLogs: noLogs,
		ServiceLog: func(context.Context, string, string) (string, string, error) { return "", "", errdefs.ErrUnavailable },
		Status:     func(string) string { return "" }, AgentStatus: func(string) (string, bool) { return "", false },
		Nameless: func(string) bool { return false }, StartWarning: func(string) string { return "" }, SecretProblems: func(string) []string { return nil }, DiskWarnings: func(store.Sandbox) []string { return nil }, Ports: func(string) []*agboxv1.PublishedPort { return nil },
		FreezeRefusal: func() string { return "" },
		EngineRefuses: func(*agboxv1.CreateSpec, *storev1.Confinement) validate.Errors { return nil },
		Rules:         func() server.Rules { return server.Rules{} }, CallerLimits: func() server.CallerLimits { return server.CallerLimits{} }, DefaultTimeout: func() time.Duration { return 0 },
		DrainWait:  func() time.Duration { return time.Minute },
		Gateways:   func() map[string]string { return nil },
		Rebuilding: quiet, NoRoom: quiet, Engine: quiet, NetworkProblem: quiet,
		Explain:       func(context.Context, string) (*agboxv1.ExplainResponse, error) { return nil, errdefs.ErrUnavailable },
		Doctor:        func() []*agboxv1.DoctorCheck { return nil },
		AttackTargets: func(context.Context, string) ([]string, error) { return nil, nil },
		Stats:         func(context.Context, []string) ([]*agboxv1.SandboxStats, error) { return nil, nil },
		NetworkActivity: func(context.Context, string) (*agboxv1.GetNetworkActivityResponse, error) {
			return nil, errdefs.ErrUnavailable
		},
		Volumes:        func(context.Context, string) ([]*agboxv1.Volume, error) { return nil, nil },
		Streams:        noStreams{},
		Opened:         func(string) {},
		Archives:       func(context.Context, string, string, func(io.Reader) error) error { return errdefs.ErrUnavailable },
		RemoveVolume:   func(context.Context, string, string) error { return errdefs.ErrNotFound },
		CreateSnapshot: func(context.Context, string, string) (*agboxv1.Snapshot, error) { return nil, errdefs.ErrUnavailable },
		Snapshots:      func(context.Context, string, string) ([]*agboxv1.Snapshot, error) { return nil, nil },
		RemoveSnapshot: func(context.Context, string) error { return errdefs.ErrNotFound },
		Templates:      noTemplates{},
		Observe:        func(string, codes.Code, time.Duration) {},
	}
}

// noTemplates is an engine that does not answer.
type noTemplates struct{}

// CreateTemplateBuild implements server.Templates.
func (noTemplates) CreateTemplateBuild(context.Context, *agboxv1.CreateTemplateBuildRequest) (*agboxv1.TemplateBuild, error) {
	return nil, errdefs.ErrUnavailable
}

// HasTemplateFiles implements server.Templates.
func (noTemplates) HasTemplateFiles(context.Context, string, string, string) (bool, error) {
	return false, errdefs.ErrUnavailable
}

// UploadTemplateFiles implements server.Templates.
func (noTemplates) UploadTemplateFiles(context.Context, string, string, string, io.Reader) error {
	return errdefs.ErrUnavailable
}

// StartTemplateBuild implements server.Templates.
func (noTemplates) StartTemplateBuild(context.Context, *agboxv1.StartTemplateBuildRequest) error {
	return errdefs.ErrUnavailable
}

// GetTemplateBuild implements server.Templates.
func (noTemplates) GetTemplateBuild(context.Context, *agboxv1.GetTemplateBuildRequest) (*agboxv1.GetTemplateBuildResponse, error) {
	return nil, errdefs.ErrUnavailable
}

// ListTemplates implements server.Templates.
func (noTemplates) ListTemplates(context.Context, string) ([]*agboxv1.Template, error) {
	return nil, errdefs.ErrUnavailable
}

// RemoveTemplate implements server.Templates.
func (noTemplates) RemoveTemplate(context.Context, string, string) error {
	return errdefs.ErrUnavailable
}

type noStreams struct{}

// Connected implements server.Streams.
func (noStreams) Connected(string) bool { return false }

// Open implements server.Streams.
func (noStreams) Open(context.Context, string, string) (net.Conn, error) {
	return nil, errdefs.ErrUnavailable
}
