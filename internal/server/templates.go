package server

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Templates builds, lists and removes templates. The methods without a comment are those of agbox.v1.TemplateService.
type Templates interface {
	CreateTemplateBuild(ctx context.Context, req *agboxv1.CreateTemplateBuildRequest) (*agboxv1.TemplateBuild, error)
	HasTemplateFiles(ctx context.Context, owner, template, hash string) (bool, error)
	// UploadTemplateFiles reads r to its end.
	UploadTemplateFiles(ctx context.Context, owner, template, hash string, r io.Reader) error
	StartTemplateBuild(ctx context.Context, req *agboxv1.StartTemplateBuildRequest) error
	GetTemplateBuild(ctx context.Context, req *agboxv1.GetTemplateBuildRequest) (*agboxv1.GetTemplateBuildResponse, error)
	ListTemplates(ctx context.Context, owner string) ([]*agboxv1.Template, error)
	RemoveTemplate(ctx context.Context, owner, id string) error
}

// templates serves agbox.v1.TemplateService.
type templates struct {
	agboxv1.UnsafeTemplateServiceServer
	*lifecycle
	keeper Templates
}

// CreateTemplateBuild implements agbox.v1.TemplateService.
func (s *templates) CreateTemplateBuild(ctx context.Context, req *agboxv1.CreateTemplateBuildRequest) (*agboxv1.CreateTemplateBuildResponse, error) {
	if err := required("gateway_owner", req.GetGatewayOwner()); err != nil {
		return nil, err
	}
	b, err := s.keeper.CreateTemplateBuild(ctx, req)
	return &agboxv1.CreateTemplateBuildResponse{Build: b}, err
}

// HasTemplateFiles implements agbox.v1.TemplateService.
func (s *templates) HasTemplateFiles(ctx context.Context, req *agboxv1.HasTemplateFilesRequest) (*agboxv1.HasTemplateFilesResponse, error) {
	present, err := s.keeper.HasTemplateFiles(ctx, req.GetGatewayOwner(), req.GetTemplateId(), req.GetHash())
	return &agboxv1.HasTemplateFilesResponse{Present: present}, err
}

// UploadTemplateFiles implements agbox.v1.TemplateService.
func (s *templates) UploadTemplateFiles(stream grpc.ClientStreamingServer[agboxv1.UploadTemplateFilesRequest, agboxv1.UploadTemplateFilesResponse]) error {
	return s.whileServing(stream.Context(), func(ctx context.Context) error {
		first, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return required("template_id", "")
		}
		if err != nil {
			return err
		}
		r := &uploadReader{recv: stream.Recv, rest: first.GetData()}
		if err := s.keeper.UploadTemplateFiles(ctx, first.GetGatewayOwner(), first.GetTemplateId(), first.GetHash(), r); err != nil {
			return err
		}
		return stream.SendAndClose(&agboxv1.UploadTemplateFilesResponse{})
	})
}

// uploadReader reads the data of a stream's messages.
type uploadReader struct {
	recv func() (*agboxv1.UploadTemplateFilesRequest, error)
	rest []byte
}

// Read implements io.Reader.
func (r *uploadReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		m, err := r.recv()
		if err != nil {
			return 0, err
		}
		r.rest = m.GetData()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// StartTemplateBuild implements agbox.v1.TemplateService.
func (s *templates) StartTemplateBuild(ctx context.Context, req *agboxv1.StartTemplateBuildRequest) (*agboxv1.StartTemplateBuildResponse, error) {
	return &agboxv1.StartTemplateBuildResponse{}, s.keeper.StartTemplateBuild(ctx, req)
}

// GetTemplateBuild implements agbox.v1.TemplateService.
func (s *templates) GetTemplateBuild(ctx context.Context, req *agboxv1.GetTemplateBuildRequest) (*agboxv1.GetTemplateBuildResponse, error) {
	return s.keeper.GetTemplateBuild(ctx, req)
}

// ListTemplates implements agbox.v1.TemplateService.
func (s *templates) ListTemplates(ctx context.Context, req *agboxv1.ListTemplatesRequest) (*agboxv1.ListTemplatesResponse, error) {
	all, err := s.keeper.ListTemplates(ctx, req.GetGatewayOwner())
	return &agboxv1.ListTemplatesResponse{Templates: all}, err
}

// RemoveTemplate implements agbox.v1.TemplateService.
func (s *templates) RemoveTemplate(ctx context.Context, req *agboxv1.RemoveTemplateRequest) (*agboxv1.RemoveTemplateResponse, error) {
	if err := required("template_id", req.GetTemplateId()); err != nil {
		return nil, err
	}
	return &agboxv1.RemoveTemplateResponse{}, s.keeper.RemoveTemplate(ctx, req.GetGatewayOwner(), req.GetTemplateId())
}
