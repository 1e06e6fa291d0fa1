package apiserver

import (
	"context"

	"github.com/google/uuid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/manifest"
)

// CreateSandbox implements agbox.v1.SandboxService.
func (s *Server) CreateSandbox(ctx context.Context, req *agboxv1.CreateSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	spec, err := s.finalSpec(req)
	if err != nil {
		return nil, err
	}
	if err := checkCreate(req, spec); err != nil {
		return nil, err
	}
	id := req.GetSandboxId()
	if id == "" {
		id = uuid.NewString()
	}
	sb, err := s.deps.Store.CreateSandbox(ctx, id, req.GetName(), spec, nil)
	if err != nil {
		return nil, err
	}
	return &agboxv1.CreateSandboxResponse{Sandbox: s.handle(sb, true)}, nil
}

// finalSpec merges create_spec over config_yaml.
func (s *Server) finalSpec(req *agboxv1.CreateSandboxRequest) (*agboxv1.CreateSpec, error) {
	if len(req.GetConfigYaml()) == 0 {
		if req.GetCreateSpec() == nil {
			return nil, invalid("create_spec", "create_spec is required")
		}
		return req.GetCreateSpec(), nil
	}
	base, err := manifest.ParseSpec(req.GetConfigYaml(), s.deps.Home)
	if err != nil {
		return nil, invalid("config_yaml", "invalid config_yaml: "+err.Error())
	}
	return manifest.Merge(base, req.GetCreateSpec()), nil
}

func checkCreate(req *agboxv1.CreateSandboxRequest, spec *agboxv1.CreateSpec) error {
	var broken validate.Errors
	if req.GetSandboxId() != "" {
		broken = append(broken, validate.SandboxID(req.GetSandboxId())...)
	}
	if req.GetName() != "" {
		broken = append(broken, validate.Name(req.GetName())...)
	}
	broken = append(broken, validate.Create(spec)...)
	if len(broken) == 0 { // paths that broke a rule are not worth a look at the host
		broken = checkMountSources(spec.GetMounts())
	}
	return broken.Err()
}
