package conformance

import (
	"archive/tar"
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// templates has the rows of template builds. Each test has an owner of its own.
func templates(t *testing.T, c *client) {
	c.sub(t, "a template is built from uploaded files, is its owner's, and is kept while it is in use", func(c *client) {
		b := newBuilder(c)
		made, err := b.record()
		c.must(err)
		if made.GetState() != agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_WAITING || made.GetGatewayOwner() != b.owner || made.GetName() != "web" {
			c.Errorf("recorded: %v", made)
		}
		if b.has(made.GetTemplateId()) {
			c.Error("files are there that were not uploaded")
		}
		c.must(b.upload(made.GetTemplateId()))
		if !b.has(made.GetTemplateId()) {
			c.Error("the files are not there")
		}
		c.must(b.start(made.GetBuildId()))
		twice := refusal{
			codes.FailedPrecondition, "TEMPLATE_BUILD_STARTED", "build " + made.GetBuildId() + " was started before", map[string]string{"build_id": made.GetBuildId()},
		}
		c.refused(b.start(made.GetBuildId()), twice)
		end := b.await(made.GetBuildId())
		c.refused(b.start(made.GetBuildId()), twice)
		if !slices.ContainsFunc(end.GetLog(), func(l *agboxv1.TemplateLogLine) bool { return l.GetText() == "hello" && l.GetStep() == 2 }) ||
			end.GetBuild().GetState() != agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_READY || end.GetBuild().GetEndedAt() == nil {
			c.Errorf("built: %v", end)
		}
		all := b.list(b.owner)
		if len(all) != 1 || all[0].GetTemplateId() != made.GetTemplateId() || all[0].GetBuildId() != made.GetBuildId() || !strings.HasPrefix(all[0].GetImage(), "sha256:") {
			c.Fatalf("listed: %v", all)
		}
		stranger := newID()
		if theirs := b.list(stranger); len(theirs) != 0 {
			c.Errorf("another owner sees %v", theirs)
		}
		notFound := refusal{codes.NotFound, "TEMPLATE_NOT_FOUND", "template " + made.GetTemplateId() + " was not found", map[string]string{"template_id": made.GetTemplateId()}}
		c.refused(b.remove(stranger, made.GetTemplateId()), notFound)
		id := c.ready(func(s *spec) { s.Image = all[0].GetImage() })
		c.refused(b.remove(b.owner, made.GetTemplateId()), refusal{
			codes.FailedPrecondition, "TEMPLATE_IN_USE", "template " + made.GetTemplateId() + " is in use: delete sandbox " + id + " first", notFound.metadata,
		})
		c.deletes(id)
		c.await(id, deleted)
		c.must(b.remove(b.owner, made.GetTemplateId()))
		c.refused(b.remove(b.owner, made.GetTemplateId()), notFound)
	})
	c.sub(t, "a removed template ends its builds", func(c *client) {
		b := newBuilder(c)
		made, err := b.record()
		c.must(err)
		c.must(b.upload(made.GetTemplateId()))
		c.must(b.start(made.GetBuildId(), "sleep 600"))
		c.must(b.remove(b.owner, made.GetTemplateId()))
		_, err = b.GetTemplateBuild(c.ctx(), &agboxv1.GetTemplateBuildRequest{GatewayOwner: b.owner, BuildId: made.GetBuildId()})
		c.refused(err, refusal{codes.NotFound, "TEMPLATE_BUILD_NOT_FOUND", "build " + made.GetBuildId() + " was not found", map[string]string{"build_id": made.GetBuildId()}})
	})
}

// builder is a client of the templates of one owner.
type builder struct {
	agboxv1.TemplateServiceClient
	c     *client
	owner string
}

func newBuilder(c *client) *builder {
	return &builder{agboxv1.NewTemplateServiceClient(agboxv1.Declare(c.conn)), c, newID()}
}

var filesHash = strings.Repeat("ab", 32)

func (b *builder) record() (*agboxv1.TemplateBuild, error) {
	resp, err := b.CreateTemplateBuild(b.c.ctx(), &agboxv1.CreateTemplateBuildRequest{GatewayOwner: b.owner, Name: "web"})
	b.c.Cleanup(func() { _ = b.remove(b.owner, resp.GetBuild().GetTemplateId()) })
	return resp.GetBuild(), err
}

func (b *builder) has(template string) bool {
	b.c.Helper()
	resp, err := b.HasTemplateFiles(b.c.ctx(), &agboxv1.HasTemplateFilesRequest{GatewayOwner: b.owner, TemplateId: template, Hash: filesHash})
	b.c.must(err)
	return resp.GetPresent()
}

func (b *builder) upload(template string) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := w.WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644, Size: 5})
	if err == nil {
		_, err = w.Write([]byte("12345"))
	}
	b.c.must(errors.Join(err, w.Close()))
	stream, err := b.UploadTemplateFiles(b.c.ctx())
	b.c.must(err)
	b.c.must(stream.Send(&agboxv1.UploadTemplateFilesRequest{GatewayOwner: b.owner, TemplateId: template, Hash: filesHash, Data: archive.Bytes()[:100]}))
	b.c.must(stream.Send(&agboxv1.UploadTemplateFilesRequest{Data: archive.Bytes()[100:]}))
	_, err = stream.CloseAndRecv()
	return err
}

// start starts a build that copies the files and says hello, with more commands after that.
func (b *builder) start(build string, commands ...string) error {
	req := &agboxv1.StartTemplateBuildRequest{GatewayOwner: b.owner, BuildId: build, FromImage: b.c.target.Image, Steps: []*agboxv1.TemplateStep{
		{Type: "COPY", Args: []string{"a", "/a"}, FilesHash: filesHash},
	}}
	for _, command := range append([]string{"echo hello"}, commands...) {
		req.Steps = append(req.Steps, &agboxv1.TemplateStep{Type: "RUN", Args: []string{command}})
	}
	_, err := b.StartTemplateBuild(b.c.ctx(), req)
	return err
}

// await waits for the end of a build.
func (b *builder) await(build string) *agboxv1.GetTemplateBuildResponse {
	b.c.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		resp, err := b.GetTemplateBuild(b.c.ctx(), &agboxv1.GetTemplateBuildRequest{GatewayOwner: b.owner, BuildId: build, LogLimit: 100})
		b.c.must(err)
		if resp.GetBuild().GetState() != agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_BUILDING {
			return resp
		}
		if time.Now().After(deadline) {
			b.c.Fatalf("the build does not end: %v", resp)
		}
	}
}

func (b *builder) list(owner string) []*agboxv1.Template {
	b.c.Helper()
	resp, err := b.ListTemplates(b.c.ctx(), &agboxv1.ListTemplatesRequest{GatewayOwner: owner})
	b.c.must(err)
	return resp.GetTemplates()
}

func (b *builder) remove(owner, template string) error {
	_, err := b.RemoveTemplate(b.c.ctx(), &agboxv1.RemoveTemplateRequest{GatewayOwner: owner, TemplateId: template})
	return err
}
