package client

import (
	"context"
	"io"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// CreateTemplateBuild records a build of an owner's template of this name, which StartTemplateBuild starts. A repeated call makes another build.
func (c *Client) CreateTemplateBuild(ctx context.Context, req *agboxv1.CreateTemplateBuildRequest) (*agboxv1.TemplateBuild, error) {
	resp, err := call(ctx, c, c.templates.CreateTemplateBuild, req)
	return resp.GetBuild(), err
}

// HasTemplateFiles reports whether the files of a hash were uploaded. An error that IsNotFound: the owner has no such template.
func (c *Client) HasTemplateFiles(ctx context.Context, owner, templateID, hash string) (bool, error) {
	resp, err := read(ctx, c, c.templates.HasTemplateFiles, &agboxv1.HasTemplateFilesRequest{GatewayOwner: owner, TemplateId: templateID, Hash: hash})
	return resp.GetPresent(), err
}

// UploadTemplateFiles stores a tar archive for the COPY steps of builds of a template.
func (c *Client) UploadTemplateFiles(ctx context.Context, owner, templateID, hash string, archive io.Reader) error {
	first := &agboxv1.UploadTemplateFilesRequest{GatewayOwner: owner, TemplateId: templateID, Hash: hash}
	_, err := upload(ctx, c, c.templates.UploadTemplateFiles, first, archive, func(data []byte) *agboxv1.UploadTemplateFilesRequest {
		return &agboxv1.UploadTemplateFilesRequest{Data: data}
	})
	return err
}

// StartTemplateBuild starts a build, once.
func (c *Client) StartTemplateBuild(ctx context.Context, req *agboxv1.StartTemplateBuildRequest) error {
	return request(ctx, c, c.templates.StartTemplateBuild, req)
}

// TemplateBuild reads a build and at most limit lines of its log from an offset on. An error that IsNotFound: the owner has no such build.
func (c *Client) TemplateBuild(ctx context.Context, owner, buildID string, offset, limit uint32) (*agboxv1.GetTemplateBuildResponse, error) {
	return read(ctx, c, c.templates.GetTemplateBuild, &agboxv1.GetTemplateBuildRequest{GatewayOwner: owner, BuildId: buildID, LogOffset: offset, LogLimit: limit})
}

// Templates reads the templates of an owner, or of all if it is empty, newest first.
func (c *Client) Templates(ctx context.Context, owner string) ([]*agboxv1.Template, error) {
	resp, err := read(ctx, c, c.templates.ListTemplates, &agboxv1.ListTemplatesRequest{GatewayOwner: owner})
	return resp.GetTemplates(), err
}

// RemoveTemplate removes a template with all its builds. An error that IsNotFound: there is none; IsFailedPrecondition: it is in use.
func (c *Client) RemoveTemplate(ctx context.Context, owner, templateID string) error {
	return request(ctx, c, c.templates.RemoveTemplate, &agboxv1.RemoveTemplateRequest{GatewayOwner: owner, TemplateId: templateID})
}
