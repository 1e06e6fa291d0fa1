package controller_test

import (
	"archive/tar"
	"bytes"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/internal/host/buildfiles"
	"github.com/agbox/agbox/internal/host/naming"
)

// withBuilds is withDaemon with a directory for the files of builds.
func withBuilds(t *testing.T, test func(t *testing.T, p *player), configure ...func(*controller.Config)) {
	t.Helper()
	dir := t.TempDir()
	withDaemon(t, test, append(configure, func(c *controller.Config) { c.Builds = buildfiles.New(dir) })...)
}

// archive returns a tar archive with one file.
func archive(t *testing.T, name, content string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

var filesHash = strings.Repeat("ab", 32)

// builds records a build of the template "web" of the owner "me", with files.
func (p *player) builds(t *testing.T) *agboxv1.TemplateBuild {
	t.Helper()
	k := p.daemon.Templates()
	b, err := k.CreateTemplateBuild(t.Context(), &agboxv1.CreateTemplateBuildRequest{GatewayOwner: "me", Name: "web", Cpus: 1, MemoryMib: 512})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.UploadTemplateFiles(t.Context(), "me", b.GetTemplateId(), filesHash, archive(t, "a", "12345")); err != nil {
		t.Fatal(err)
	}
	return b
}

func (p *player) starts(t *testing.T, b *agboxv1.TemplateBuild, commands ...string) error {
	t.Helper()
	req := &agboxv1.StartTemplateBuildRequest{
		GatewayOwner: "me", BuildId: b.GetBuildId(), FromImage: image, StartCommand: "serve", Steps: []*agboxv1.TemplateStep{
			{Type: "ENV", Args: []string{"A", "1"}}, {Type: "COPY", Args: []string{"a", "/a", "", ""}, FilesHash: filesHash},
		},
	}
	for _, command := range commands {
		req.Steps = append(req.Steps, &agboxv1.TemplateStep{Type: "RUN", Args: []string{command}})
	}
	return p.daemon.Templates().StartTemplateBuild(t.Context(), req)
}

func (p *player) buildNow(t *testing.T, b *agboxv1.TemplateBuild) (*agboxv1.TemplateBuild, []string) {
	t.Helper()
	resp, err := p.daemon.Templates().GetTemplateBuild(t.Context(), &agboxv1.GetTemplateBuildRequest{GatewayOwner: "me", BuildId: b.GetBuildId(), LogLimit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var log []string
	for _, l := range resp.GetLog() {
		log = append(log, l.GetText())
	}
	return resp.GetBuild(), log
}

func (p *player) layers(t *testing.T) int {
	t.Helper()
	all, err := p.engine.ListImages(t.Context(), map[string]string{naming.BuildLayer: p.store.InstanceID()})
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

const (
	notStarted = agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_WAITING
	building   = agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_BUILDING
	built      = agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_READY
	broken     = agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_ERROR
)

func TestATemplateIsBuilt(t *testing.T) {
	withBuilds(t, func(t *testing.T, p *player) {
		pass(time.Minute)
		k := p.daemon.Templates()
		p.engine.BuildDelay = time.Minute
		b := p.builds(t)
		if b.GetState() != notStarted {
			t.Errorf("recorded: %v", b)
		}
		if err := p.starts(t, b, "echo hello"); err != nil {
			t.Fatal(err)
		}
		if err := p.starts(t, b, "echo hello"); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("started twice: %v", err)
		}
		pass(time.Second)
		if now, _ := p.buildNow(t, b); now.GetState() != building {
			t.Errorf("started: %v", now)
		}
		pass(10 * time.Minute)
		now, log := p.buildNow(t, b)
		if now.GetState() != built || now.GetEndedAt() == nil || !slices.Contains(log, "hello") {
			t.Errorf("ended: %v, with the log %q", now, log)
		}
		if has, err := k.HasTemplateFiles(t.Context(), "me", b.GetTemplateId(), filesHash); has || err != nil {
			t.Errorf("the files are still there: %t, %v", has, err)
		}
		all, err := k.ListTemplates(t.Context(), "me")
		if err != nil || len(all) != 1 || all[0].GetBuildId() != b.GetBuildId() || all[0].GetSettings().GetUser() != "user" ||
			all[0].GetSettings().GetStartCommand() != "serve" || all[0].GetSettings().GetMemoryMib() != 512 || all[0].GetState() != built {
			t.Fatalf("listed: %v, %v", all, err)
		}
		img, err := p.engine.InspectImage(t.Context(), all[0].GetImage())
		if err != nil || !slices.Contains(img.Env, "A=1") || img.User != "user" || img.Labels[naming.BuildLayer] != "" {
			t.Errorf("the image is %+v, %v", img, err)
		}

		again := p.builds(t)
		if again.GetTemplateId() != b.GetTemplateId() {
			t.Errorf("another template: %v", again)
		}
		if err := p.starts(t, again, "echo hello"); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if now, log := p.buildNow(t, again); now.GetState() != built || slices.Contains(log, "hello") {
			t.Errorf("built from the cache: %v, with the log %q", now, log)
		}

		for _, owner := range []string{"you", ""} {
			if all, err := k.ListTemplates(t.Context(), "you"); err != nil || len(all) != 0 {
				t.Errorf("%q sees %v, %v", owner, all, err)
			}
			if err := k.RemoveTemplate(t.Context(), owner, b.GetTemplateId()); !errdefs.IsNotFound(err) {
				t.Errorf("removed by %q: %v", owner, err)
			}
			if _, err := k.GetTemplateBuild(t.Context(), &agboxv1.GetTemplateBuildRequest{GatewayOwner: owner, BuildId: b.GetBuildId()}); !errdefs.IsNotFound(err) {
				t.Errorf("read by %q: %v", owner, err)
			}
		}
	})
}

func TestATemplateInUseIsKept(t *testing.T) {
	withBuilds(t, func(t *testing.T, p *player) {
		pass(time.Minute)
		k := p.daemon.Templates()
		b := p.builds(t)
		if err := p.starts(t, b); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		all, err := k.ListTemplates(t.Context(), "me")
		if err != nil || len(all) != 1 || all[0].GetImage() == "" {
			t.Fatalf("%v, %v", all, err)
		}
		if _, err := p.store.CreateSandbox(t.Context(), "heir", "", &agboxv1.CreateSpec{Image: all[0].GetImage()}, nil); err != nil {
			t.Fatal(err)
		}
		if err := k.RemoveTemplate(t.Context(), "me", b.GetTemplateId()); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("removed while a sandbox that was only accepted has it: %v", err)
		}
		again := p.builds(t)
		if err := p.starts(t, again, "echo more"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Hour)
		p.wantState(t, "heir", agboxv1.SandboxState_SANDBOX_STATE_READY)
		images := func() (n int) {
			some, err := p.engine.ListImages(t.Context(), map[string]string{naming.BuildTemplate: b.GetTemplateId()})
			if err != nil {
				t.Fatal(err)
			}
			return len(some)
		}
		if n := images(); n != 2 {
			t.Errorf("%d images while the older one is in use", n)
		}
		if _, err := p.store.RequestDelete(t.Context(), "heir", "delete_requested"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Hour)
		if n := images(); n != 1 {
			t.Errorf("%d images after the sandbox of the older one was deleted", n)
		}
		if err := k.RemoveTemplate(t.Context(), "me", b.GetTemplateId()); err != nil {
			t.Error(err)
		}
		if all, err := k.ListTemplates(t.Context(), ""); err != nil || len(all) != 0 || images() != 0 {
			t.Errorf("left: %v, %v", all, err)
		}
		if err := k.RemoveTemplate(t.Context(), "me", b.GetTemplateId()); !errdefs.IsNotFound(err) {
			t.Errorf("removed twice: %v", err)
		}
	})
}

func TestABuildThatFailsSaysWhichStep(t *testing.T) {
	withBuilds(t, func(t *testing.T, p *player) {
		pass(time.Minute)
		b := p.builds(t)
		if err := p.starts(t, b, "echo hello", "exit 3"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		now, log := p.buildNow(t, b)
		if now.GetState() != broken || now.GetErrorStep() != 4 || !strings.Contains(now.GetErrorMessage(), "step 4 of 4 ended with the exit code 3: RUN exit 3") || !slices.Contains(log, "hello") {
			t.Errorf("%v, with the log %q", now, log)
		}
		if all, err := p.daemon.Templates().ListTemplates(t.Context(), "me"); err != nil || len(all) != 1 || all[0].GetImage() != "" || all[0].GetState() != broken {
			t.Errorf("listed: %v, %v", all, err)
		}
	})
}

// TestABuildIsInterrupted: the next daemon says so, and removes what it left.
func TestABuildIsInterrupted(t *testing.T) {
	withBuilds(t, func(t *testing.T, p *player) {
		pass(time.Minute)
		p.engine.BuildDelay = time.Minute
		b := p.builds(t)
		if err := p.starts(t, b, "echo hello"); err != nil {
			t.Fatal(err)
		}
		pass(90 * time.Second) // in the second of two RUN steps
		if n := p.layers(t); n == 0 {
			t.Error("the build has made nothing")
		}
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		now, log := p.buildNow(t, b)
		if now.GetState() != broken || !strings.Contains(now.GetErrorMessage(), "interrupted") || len(log) == 0 {
			t.Errorf("%v, with the log %q", now, log)
		}
		pass(2 * time.Hour)
		if n := p.layers(t); n != 0 {
			t.Errorf("%d images are left", n)
		}
	})
}

// TestTheCacheKeepsNothing: what a build on a template or a snapshot has left in the cache is no use of it.
func TestTheCacheKeepsNothing(t *testing.T) {
	withBuilds(t, func(t *testing.T, p *player) {
		box := p.readyBox(t)
		snap, err := p.daemon.CreateSnapshot(t.Context(), box, "snap")
		if err != nil {
			t.Fatal(err)
		}
		k := p.daemon.Templates()
		b := p.builds(t)
		if err := p.starts(t, b, "echo hello"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		all, err := k.ListTemplates(t.Context(), "me")
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		for name, from := range map[string]string{"on-template": all[0].GetImage(), "on-snapshot": snap.GetImage()} {
			other, err := k.CreateTemplateBuild(t.Context(), &agboxv1.CreateTemplateBuildRequest{GatewayOwner: "me", Name: name})
			if err != nil {
				t.Fatal(err)
			}
			err = k.StartTemplateBuild(t.Context(), &agboxv1.StartTemplateBuildRequest{
				GatewayOwner: "me", BuildId: other.GetBuildId(), FromImage: from, Steps: []*agboxv1.TemplateStep{{Type: "RUN", Args: []string{"echo " + name}}},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		if err := k.RemoveTemplate(t.Context(), "me", b.GetTemplateId()); err != nil {
			t.Error(err)
		}
		if err := p.daemon.RemoveSnapshot(t.Context(), "snap"); err != nil {
			t.Error(err)
		}
		if all, err := k.ListTemplates(t.Context(), "me"); err != nil || len(all) != 2 || all[0].GetImage() == "" || all[1].GetImage() == "" {
			t.Errorf("left: %v, %v", all, err)
		}
	})
}

func TestTheCacheIsGarbage(t *testing.T) {
	withBuilds(t, func(t *testing.T, p *player) {
		pass(time.Minute)
		b := p.builds(t)
		if err := p.starts(t, b, "echo hello"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Hour)
		if p.layers(t) == 0 {
			t.Error("there is no cache")
		}
		items, err := p.daemon.CollectGarbage(t.Context(), &agboxv1.CollectGarbageRequest{})
		if err != nil || len(items) == 0 {
			t.Errorf("%v, %v", items, err)
		}
		for _, g := range items {
			if !g.GetRemoved() {
				t.Errorf("not removed: %v", g)
			}
		}
		if n := p.layers(t); n != 0 {
			t.Errorf("%d images are left", n)
		}
		if now, _ := p.buildNow(t, b); now.GetState() != built {
			t.Errorf("the build is %v", now)
		}
	})
}

// from builds a template of an owner from an image, and returns the end of the build with its log.
func (p *player) from(t *testing.T, owner, ref string) (*agboxv1.TemplateBuild, []string) {
	t.Helper()
	k := p.daemon.Templates()
	b, err := k.CreateTemplateBuild(t.Context(), &agboxv1.CreateTemplateBuildRequest{GatewayOwner: owner, Name: "from"})
	if err != nil {
		t.Fatal(err)
	}
	err = k.StartTemplateBuild(t.Context(), &agboxv1.StartTemplateBuildRequest{
		GatewayOwner: owner, BuildId: b.GetBuildId(), FromImage: ref, Steps: []*agboxv1.TemplateStep{{Type: "RUN", Args: []string{"echo hello"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	pass(time.Minute)
	resp, err := k.GetTemplateBuild(t.Context(), &agboxv1.GetTemplateBuildRequest{GatewayOwner: owner, BuildId: b.GetBuildId(), LogLimit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var log []string
	for _, l := range resp.GetLog() {
		log = append(log, l.GetText())
	}
	return resp.GetBuild(), log
}

// TestANameOfAnotherOwnersImageIsRefused: a pull from the client's registry can give a name to any image that the engine has.
func TestANameOfAnotherOwnersImageIsRefused(t *testing.T) {
	withBuilds(t, func(t *testing.T, p *player) {
		if _, err := p.store.CreateSandbox(t.Context(), "mine", "", &agboxv1.CreateSpec{Image: image, Gateway: &agboxv1.GatewaySpec{Owner: "me"}}, nil); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		snap, err := p.daemon.CreateSnapshot(t.Context(), "mine", "snap")
		if err != nil {
			t.Fatal(err)
		}
		p.from(t, "me", image)
		all, err := p.daemon.Templates().ListTemplates(t.Context(), "me")
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		layers, err := p.engine.ListImages(t.Context(), map[string]string{naming.BuildLayer: p.store.InstanceID()})
		if err != nil || len(layers) == 0 {
			t.Fatalf("%v, %v", layers, err)
		}
		for name, id := range map[string]string{"template": all[0].GetImage(), "snapshot": snap.GetImage(), "layer": layers[0].ID} {
			img, err := p.engine.InspectImage(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			stolen := "registry.example/" + name + ":1"
			p.engine.AddRemoteImage(stolen, img)
			if end, _ := p.from(t, "you", stolen); end.GetState() != broken || !strings.Contains(end.GetErrorMessage(), "of another owner") {
				t.Errorf("%s: a build from it is %v", name, end)
			}
			if _, err := p.store.CreateSandbox(t.Context(), "thief-"+name, "", &agboxv1.CreateSpec{Image: stolen, Gateway: &agboxv1.GatewaySpec{Owner: "you"}}, nil); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			p.wantState(t, "thief-"+name, agboxv1.SandboxState_SANDBOX_STATE_FAILED)
			if end, _ := p.from(t, "me", stolen); (end.GetState() == built) != (name != "layer") {
				t.Errorf("%s: a build of its owner from it is %v", name, end)
			}
		}
	})
}

func TestOwnersShareNoCache(t *testing.T) {
	withBuilds(t, func(t *testing.T, p *player) {
		pass(time.Minute)
		for _, owner := range []string{"me", "you"} {
			if end, log := p.from(t, owner, image); end.GetState() != built || !slices.Contains(log, "hello") {
				t.Errorf("%s: %v, with the log %q", owner, end, log)
			}
		}
	})
}

func TestStepsHaveALimitOfProcesses(t *testing.T) {
	withBuilds(t, func(t *testing.T, p *player) {
		pass(time.Minute)
		p.engine.BuildDelay = time.Minute
		b := p.builds(t)
		if err := p.starts(t, b, "echo hello"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			pass(30 * time.Second)
			all, err := p.engine.ListContainers(t.Context(), map[string]string{naming.BuildLayer: p.store.InstanceID()})
			if err != nil || len(all) != 1 {
				t.Fatalf("containers of steps: %v, %v", all, err)
			}
			c, err := p.engine.InspectContainer(t.Context(), all[0].ID)
			if err != nil || c.Limits.Pids != 777 || c.Limits.MemoryBytes != 512<<20 || c.Limits.NanoCPUs != 1e9 {
				t.Errorf("%+v, %v", c.Limits, err)
			}
			pass(30 * time.Second)
		}
		if now, _ := p.buildNow(t, b); now.GetState() != built {
			t.Errorf("ended: %v", now)
		}
	}, func(c *controller.Config) { c.Settings.PidsLimit = 777 })
}

func TestABuildEndsWhenTheDiskIsFull(t *testing.T) {
	var full atomic.Bool
	withBuilds(t, func(t *testing.T, p *player) {
		pass(time.Minute)
		p.engine.BuildDelay = time.Minute
		b := p.builds(t)
		if err := p.starts(t, b, "echo hello"); err != nil {
			t.Fatal(err)
		}
		pass(90 * time.Second)
		full.Store(true)
		pass(5 * time.Second)
		if now, _ := p.buildNow(t, b); now.GetState() != broken || !strings.Contains(now.GetErrorMessage(), "no room at all") {
			t.Errorf("%v", now)
		}
		pass(2 * time.Minute)
		if n := p.layers(t); n != 0 {
			t.Errorf("%d images of steps are left", n)
		}
	}, func(c *controller.Config) {
		c.NoRoom = func() string {
			if full.Load() {
				return "no room at all"
			}
			return ""
		}
	})
}

// TestARemovedTemplateEndsItsBuilds: a running build, and one that waits for it.
func TestARemovedTemplateEndsItsBuilds(t *testing.T) {
	withBuilds(t, func(t *testing.T, p *player) {
		pass(time.Minute)
		k := p.daemon.Templates()
		p.engine.BuildDelay = time.Hour
		var all []*agboxv1.TemplateBuild
		for range 3 {
			b := p.builds(t)
			if err := p.starts(t, b, "echo hello"); err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
		pass(time.Minute)
		if now, _ := p.buildNow(t, all[2]); now.GetState() != building {
			t.Errorf("the last one is %v", now)
		}
		if err := k.RemoveTemplate(t.Context(), "me", all[0].GetTemplateId()); err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			if _, err := k.GetTemplateBuild(t.Context(), &agboxv1.GetTemplateBuildRequest{GatewayOwner: "me", BuildId: b.GetBuildId()}); !errdefs.IsNotFound(err) {
				t.Errorf("%s: %v", b.GetBuildId(), err)
			}
		}
		if left, err := p.engine.ListContainers(t.Context(), map[string]string{naming.BuildLayer: p.store.InstanceID()}); err != nil || len(left) > 0 {
			t.Errorf("containers: %v, %v", left, err)
		}
		p.engine.BuildDelay = 0
		if end, _ := p.from(t, "me", image); end.GetState() != built {
			t.Errorf("after it: %v", end)
		}
	})
}

// TestTwoBuildsOfATemplate: each has the files that it found, and later sandboxes are made from the one that has ended last.
func TestTwoBuildsOfATemplate(t *testing.T) {
	withBuilds(t, func(t *testing.T, p *player) {
		pass(time.Minute)
		p.engine.BuildDelay = time.Minute
		slow := p.builds(t)
		if err := p.starts(t, slow, "echo slow", "echo slower"); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		fast := p.builds(t)
		pass(time.Second)
		waits := p.builds(t)
		if err := p.starts(t, fast, "echo fast"); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		if now, _ := p.buildNow(t, slow); now.GetState() != built {
			t.Errorf("the slow one is %v", now)
		}
		if has, err := p.daemon.Templates().HasTemplateFiles(t.Context(), "me", waits.GetTemplateId(), filesHash); !has || err != nil {
			t.Errorf("the files of a build that waits: %t, %v", has, err)
		}
		if err := p.starts(t, waits, "exit 1"); err != nil {
			t.Error(err)
		}
		pass(time.Hour)
		all, err := p.daemon.Templates().ListTemplates(t.Context(), "me")
		if err != nil || len(all) != 1 || all[0].GetBuildId() != slow.GetBuildId() || all[0].GetBuildCount() != 3 || all[0].GetState() != broken {
			t.Errorf("%v, %v", all, err)
		}
	})
}
