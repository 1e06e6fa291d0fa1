package sandbox

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/enginelink"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/profile"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/store"
)

// namedStore is a RecordStore that implements only its instance ID.
type namedStore struct{ RecordStore }

// drawConfinement draws a confinement or nil: sandboxes accepted by releases without confinements have none.
func drawConfinement(t *rapid.T) *storev1.Confinement {
	if rapid.Bool().Draw(t, "unconfined") {
		return nil
	}
	return &storev1.Confinement{
		Profile:          rapid.SampledFrom([]string{profile.Standard, profile.Hardened}).Draw(t, "profile"),
		MemoryLimitBytes: rapid.SampledFrom([]int64{0, 512 << 20}).Draw(t, "memory default"),
	}
}

func (namedStore) InstanceID() string { return "11111111-1111-4111-8111-111111111111" }

// rebuilt creates the containers of a sandbox as a pass does, and then rebuilds its record from them as if it had been lost.
func rebuilt(t *rapid.T, root string, sb store.Sandbox) recovery.Sandbox {
	engine := dockertest.NewFake()
	for _, image := range append([]string{sb.Spec.GetImage()}, serviceImages(sb.Spec)...) {
		engine.AddImage(image, dockerx.Image{Env: []string{"PATH=/bin", "A=image"}})
	}
	files := execjournal.New(filepath.Join(root, "logs"), filepath.Join(root, "s"))
	set := Settings{PidsLimit: 4096}
	p := &pass{
		Reconciler: &Reconciler{
			o:   Options{Link: &enginelink.Link{}, Store: namedStore{}, Files: files, Host: Host{ShimDir: "/shim", HostUID: 1, HostGID: 2}},
			log: slog.New(slog.DiscardHandler),
		},
		rec: plan.Record{ID: sb.ID, Wanted: WantedOf(sb.Spec, sb.Desired.GetConfinement(), set)}, sb: sb, set: set, images: map[string]dockerx.Image{},
	}
	network, err := engine.CreateNetwork(t.Context(), dockerx.NetworkSpec{
		Name: naming.Network(sb.ID), Labels: p.labels(naming.ComponentNetwork), PrefixBits: 24,
	})
	must(t, err)
	services := []string{""}
	for _, s := range p.rec.Wanted.Services {
		services = append(services, s.Name)
	}
	for _, service := range services {
		spec, err := p.containerSpec(service, network.ID)
		must(t, err)
		id, err := engine.CreateContainer(t.Context(), spec)
		must(t, err)
		must(t, engine.StartContainer(t.Context(), id))
	}
	must(t, files.Release(sb.ID))
	g := recovery.Gatherer{
		Engine: engine, Files: files, Log: p.log, Instance: namedStore{}.InstanceID(), Settings: recovery.Settings{PidsLimit: set.PidsLimit},
	}
	in, err := g.Gather(t.Context(), nil)
	must(t, err)
	out := recovery.Plan(in, time.Now())
	if len(out.Sandboxes) != 1 {
		t.Fatalf("%d sandboxes, skipped %+v", len(out.Sandboxes), out.Skipped)
	}
	return out.Sandboxes[0]
}

func must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func serviceImages(spec *agboxv1.CreateSpec) (images []string) {
	for _, s := range slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()) {
		images = append(images, s.GetImage())
	}
	return images
}

var (
	words   = rapid.StringMatching(`[a-z][a-z0-9]{0,8}`)
	envs    = rapid.MapOfN(rapid.StringMatching(`[A-Z]{1,3}|HOST_UID|SSH_AUTH_SOCK`), rapid.StringMatching(`[ -~\n]{0,12}`), 0, 4)
	sizes   = rapid.SampledFrom([]string{"", "16MiB", "1.5g", "536870912"})
	words0  = rapid.SliceOfN(rapid.StringMatching(`[ -~]{1,8}`), 0, 3)
	cpus    = rapid.SampledFrom([]float64{0, 0.01, 0.333333333, 2, 1024})
	pids    = rapid.SampledFrom([]uint32{0, 64, 4096})
	restart = rapid.SampledFrom([]string{"", "never", "always", "on-failure"})
	users   = rapid.SampledFrom([]string{"", "root", "1000:1000"})
	spans   = rapid.SampledFrom([]*durationpb.Duration{nil, durationpb.New(0), durationpb.New(90 * time.Second)})
)

func drawPorts(t *rapid.T) []*agboxv1.PortSpec {
	var ports []*agboxv1.PortSpec
	for _, n := range rapid.SliceOfNDistinct(rapid.Uint32Range(1, 65535), 0, 3, rapid.ID).Draw(t, "ports") {
		ports = append(ports, &agboxv1.PortSpec{ContainerPort: n, Protocol: rapid.SampledFrom([]string{"", "tcp", "udp"}).Draw(t, "protocol")})
	}
	return ports
}

func drawService(t *rapid.T, name string, required bool) *agboxv1.ServiceSpec {
	s := &agboxv1.ServiceSpec{
		Name: name, Image: "svc:" + name, Envs: envs.Draw(t, "envs"), Command: words0.Draw(t, "command"), User: users.Draw(t, "user"),
		Ports: drawPorts(t), CpuLimit: cpus.Draw(t, "cpus"), MemoryLimit: sizes.Draw(t, "memory"), PidsLimit: pids.Draw(t, "pids"),
		RestartPolicy: restart.Draw(t, "restart"),
	}
	if required {
		s.Healthcheck = &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}, Interval: durationpb.New(1500 * time.Millisecond), Retries: 2}
	}
	return s
}

func drawSpec(t *rapid.T) *agboxv1.CreateSpec {
	spec := &agboxv1.CreateSpec{
		Image: "base:" + words.Draw(t, "tag"), Envs: envs.Draw(t, "envs"), Labels: rapid.MapOfN(words, rapid.StringMatching(`[ -~]{0,8}`), 0, 3).Draw(t, "labels"),
		Command: words0.Draw(t, "command"), User: users.Draw(t, "user"), WorkingDir: rapid.SampledFrom([]string{"", "/workspace", "/srv"}).Draw(t, "dir"),
		Ports: drawPorts(t), CpuLimit: cpus.Draw(t, "cpus"), MemoryLimit: sizes.Draw(t, "memory"), PidsLimit: pids.Draw(t, "pids"),
		RestartPolicy: restart.Draw(t, "restart"), IdleTtl: spans.Draw(t, "idle"), Timeout: spans.Draw(t, "timeout"),
		OnTimeout: rapid.SampledFrom([]string{"", "stop", "pause", "delete"}).Draw(t, "on timeout"), AutoResume: rapid.Bool().Draw(t, "auto resume"),
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "mounts") {
		spec.Mounts = append(spec.Mounts, &agboxv1.MountSpec{
			Source: fmt.Sprintf("/src/%d", i), Target: fmt.Sprintf("/dst/%d", i), Writable: rapid.Bool().Draw(t, "writable"),
		})
	}
	if rapid.Bool().Draw(t, "copies") {
		spec.Copies = []*agboxv1.CopySpec{{Source: "/from", Target: "/to", ExcludePatterns: []string{"*.o"}}}
	}
	if rapid.Bool().Draw(t, "tools") {
		spec.BuiltinTools = []string{"git", "npm"}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "services") {
		if required := rapid.Bool().Draw(t, "required"); required {
			spec.RequiredServices = append(spec.RequiredServices, drawService(t, fmt.Sprintf("s%d", i), true))
		} else {
			spec.OptionalServices = append(spec.OptionalServices, drawService(t, fmt.Sprintf("s%d", i), false))
		}
	}
	return validate.Normalize(spec)
}

// A record rebuilt from its containers equals the original, except for the parts that the rebuild reports as lost.
func TestARecordIsRebuiltFromItsContainers(t *testing.T) {
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		sb := store.Sandbox{ID: fmt.Sprintf("box-%d", n), Name: rapid.SampledFrom([]string{"", "my-box"}).Draw(t, "name"), Spec: drawSpec(t)}
		if errs := validate.Create(sb.Spec); errs != nil {
			t.Skip("not a valid spec")
		}
		sb.Desired = &storev1.Desired{Name: sb.Name, Confinement: drawConfinement(t), Caller: rapid.SampledFrom([]string{"", "uid:1000", "tls:alice"}).Draw(t, "caller")}
		if len(sb.Spec.GetBuiltinTools()) > 0 {
			sb.Desired.ToolMounts = []*storev1.ToolMount{
				{Tool: "git", Source: "/run/agent.sock", Target: "/ssh-agent"},
				{Tool: "npm", Source: "/home/me/.npm", Target: "/home/agbox/.npm", Writable: true},
			}
		}
		got := rebuilt(t, filepath.Join(root, sb.ID), sb)
		if !proto.Equal(got.Record.GetSpec(), sb.Spec) || got.Source != recovery.FromLabels {
			t.Fatalf("from %s\ngot  %v\nwant %v", got.Source, got.Record.GetSpec(), sb.Spec)
		}
		d := got.Record.GetDesired()
		if !proto.Equal(d.GetConfinement(), sb.Desired.GetConfinement()) {
			t.Fatalf("confinement %v, want %v", d.GetConfinement(), sb.Desired.GetConfinement())
		}
		if d.GetCaller() != sb.Desired.GetCaller() {
			t.Fatalf("caller %q, want %q", d.GetCaller(), sb.Desired.GetCaller())
		}
		if d.GetName() != sb.Name || !slices.EqualFunc(d.GetToolMounts(), sb.Desired.GetToolMounts(), func(a, b *storev1.ToolMount) bool { return proto.Equal(a, b) }) {
			t.Fatalf("name %q, tool mounts %v", d.GetName(), d.GetToolMounts())
		}
		for _, f := range got.Defaulted {
			if f == "spec" || f == "name" || strings.Contains(f, "env") {
				t.Fatalf("%s is said to be guessed", f)
			}
		}
	})
}
