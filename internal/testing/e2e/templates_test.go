//go:build docker

package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// starts starts a build of a template of an owner with RUN steps.
func (d *daemon) starts(owner, from string, commands ...string) *agboxv1.TemplateBuild {
	d.Helper()
	c := agboxv1.NewTemplateServiceClient(d.conn)
	b := must(c.CreateTemplateBuild(d.ctx(), &agboxv1.CreateTemplateBuildRequest{GatewayOwner: owner, Name: "made"}))(d).GetBuild()
	req := &agboxv1.StartTemplateBuildRequest{GatewayOwner: owner, BuildId: b.GetBuildId(), FromImage: from}
	for _, command := range commands {
		req.Steps = append(req.Steps, &agboxv1.TemplateStep{Type: "RUN", Args: []string{command}})
	}
	must(c.StartTemplateBuild(d.ctx(), req))(d)
	return b
}

// builds makes a template of an owner with one RUN step, and returns the end of its build.
func (d *daemon) builds(owner, from, command string) *agboxv1.TemplateBuild {
	d.Helper()
	c, b := agboxv1.NewTemplateServiceClient(d.conn), d.starts(owner, from, command)
	d.Cleanup(func() {
		_, _ = c.RemoveTemplate(d.ctx(), &agboxv1.RemoveTemplateRequest{GatewayOwner: owner, TemplateId: b.GetTemplateId()}) // the test may have
	})
	d.eventually("the build has ended", func() error {
		b = must(c.GetTemplateBuild(d.ctx(), &agboxv1.GetTemplateBuildRequest{GatewayOwner: owner, BuildId: b.GetBuildId()}))(d).GetBuild()
		if b.GetState() == agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_BUILDING {
			return fmt.Errorf("it is %v", b)
		}
		return nil
	})
	return b
}

// TestAStepHasALimitOfProcesses: the step sees the limit of its own cgroup.
func TestAStepHasALimitOfProcesses(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\npids_limit = 99\n")
	b := d.builds("me", baseImage, `for i in $(seq 100); do grep -qx 99 /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null && exit 0; sleep 0.1; done; exit 5`)
	if b.GetState() != agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_READY {
		t.Errorf("%v", b)
	}
}

// TestARegistryGivesNoClientAnImageOfAnother: it serves a manifest whose image the engine has, which the engine takes for pulled. Of an engine with
// containerd's store it only says which manifest it has.
func TestARegistryGivesNoClientAnImageOfAnother(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	d.builds("me", baseImage, "echo secret >secret")
	made := must(agboxv1.NewTemplateServiceClient(d.conn).ListTemplates(d.ctx(), &agboxv1.ListTemplatesRequest{GatewayOwner: "me"}))(t).GetTemplates()
	if len(made) != 1 || made[0].GetImage() == "" {
		t.Fatalf("%v", made)
	}
	head := http.Header{"Content-Type": {"application/vnd.docker.distribution.manifest.v2+json"}}
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.docker.container.image.v1+json","size":1,"digest":%q},"layers":[]}`,
		head.Get("Content-Type"), made[0].GetImage())
	if d.inContainerd() {
		one := strings.Fields(d.docker("image", "inspect", "-f", "{{.Descriptor.MediaType}} {{.Descriptor.Size}}", made[0].GetImage()))
		head = http.Header{"Content-Type": one[:1], "Content-Length": one[1:], "Docker-Content-Digest": {made[0].GetImage()}}
		manifest = ""
	}
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/manifests/") {
			maps.Copy(w.Header(), head)
			_, _ = w.Write([]byte(manifest))
		}
	}))
	defer registry.Close()
	ref := strings.TrimPrefix(registry.URL, "http://") + "/stolen:1"
	t.Cleanup(func() { d.docker("rmi", ref) })
	if b := d.builds("you", ref, "cat secret"); !strings.Contains(b.GetErrorMessage(), "of another owner") {
		t.Errorf("%v", b)
	}
	must(d.CreateSandbox(d.ctx(), &agboxv1.CreateSandboxRequest{
		SandboxId: "thief-" + strings.ToLower(made[0].GetBuildId()), CreateSpec: &agboxv1.CreateSpec{Image: ref, Gateway: &agboxv1.GatewaySpec{Owner: "you"}},
	}))(t)
	d.await("thief-"+strings.ToLower(made[0].GetBuildId()), failed)
}
