package sandbox

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/apis/inject"
	"github.com/agbox/agbox/apis/privilege"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/profile"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/internal/host/ipcbounds"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/host/passwd"
)

// sshAgent is the path of the git tool's socket in the container. It is part of the contract.
const sshAgent = "/ssh-agent"

// labels returns the labels of an object of the sandbox at creation.
func (p *pass) labels(component string) map[string]string {
	l := map[string]string{
		naming.SandboxID: p.rec.ID,
		naming.Component: component,
		naming.Instance:  p.o.Store.InstanceID(),
		naming.SpecHash:  plan.SpecHash(p.sb.Spec),
	}
	if p.sb.Name != "" {
		l[naming.SandboxName] = p.sb.Name
	}
	for k, v := range p.sb.Spec.GetLabels() {
		l[naming.UserPrefix+k] = v
	}
	return l
}

// profile returns the security profile resolved when the sandbox was accepted; empty: it was accepted before profiles existed.
func (p *pass) profile() string { return p.sb.Desired.GetConfinement().GetProfile() }

func (p *pass) containerSpec(service, networkID string) (spec dockerx.ContainerSpec, err error) {
	if service != "" {
		spec, err = p.serviceSpec(ServiceSpec(p.sb.Spec, service), networkID)
	} else {
		spec, err = p.primarySpec(networkID)
	}
	spec.DNS = p.sb.Desired.GetConfinement().GetDnsServers()
	spec.Security.PrivateCgroups = p.o.Link.Info().CgroupVersion == "2"
	return spec, err
}

// primarySpec describes the primary container. PID 1 is the shim, regardless of what the image would start: it reaps processes, and starts
// the main process and every exec.
func (p *pass) primarySpec(networkID string) (dockerx.ContainerSpec, error) {
	spec := p.sb.Spec
	label, err := plan.SpecLabel(spec)
	if err != nil {
		return dockerx.ContainerSpec{}, err
	}
	mounts, err := p.mounts()
	if err != nil {
		return dockerx.ContainerSpec{}, err
	}
	labels := p.labels(naming.ComponentPrimary)
	labels[naming.Template] = spec.GetImage()
	if label == "" {
		p.log.Info("the spec is too large for a label: less of it can be rebuilt from the container alone", "sandbox_id", p.rec.ID)
	} else {
		labels[naming.Spec] = label
	}
	if label, err := plan.ConfinementLabel(p.sb.Desired.GetConfinement()); err != nil {
		return dockerx.ContainerSpec{}, err
	} else if label != "" {
		labels[naming.Confinement] = label
	}
	if caller := p.sb.Desired.GetCaller(); caller != "" {
		labels[naming.Caller] = caller
	}
	disk, err := validate.MemoryBytes(spec.GetDiskLimit())
	if err != nil {
		return dockerx.ContainerSpec{}, fmt.Errorf("disk_limit: %w", err)
	}
	if !p.o.Link.Info().DiskLimit {
		disk = 0 // package disklimit watches it
	}
	shm, sysctls := lastingMemory(p.sb.Desired.GetConfinement())
	return dockerx.ContainerSpec{
		Name: naming.Primary(p.rec.ID), Image: spec.GetImage(), Hostname: p.sb.Name,
		Entrypoint: p.entrypoint(), Env: p.env(), User: "0:0", WorkingDir: cmp.Or(spec.GetWorkingDir(), plan.WorkingDir),
		Labels: labels, Mounts: mounts, NetworkID: networkID,
		Limits: dockerx.Limits(p.rec.Wanted.Limits), DiskBytes: disk, GPUs: spec.GetGpus(), Runtime: spec.GetRuntime(),
		Shm: shm, Sysctls: sysctls,
		Ports:      portSpecs(spec.GetPorts()),
		StopSignal: "SIGTERM", // the signal that the shim handles, regardless of the image
		// The image's own healthcheck would run as root, beside the shim, and before the release.
		Healthcheck: &dockerx.Healthcheck{Test: []string{"NONE"}},
		Security:    profile.Primary(p.profile(), spec.GetSecurity()),
	}, nil
}

// lastingMemory bounds memory that outlives processes by the memory limit of the accept, not by the present one: the API server checks
// updates against it.
func lastingMemory(c *storev1.Confinement) (*dockerx.Shm, map[string]string) {
	limit := c.GetPrimaryMemoryBytes()
	if limit == 0 {
		return nil, nil
	}
	b := ipcbounds.Of(limit)
	return &dockerx.Shm{Bytes: b.ShmBytes, Files: b.ShmFiles}, b.Sysctls()
}

// hostUserFlag is an argument of PID 1, with the user agbox, or that of default_user, where the image lacks it. Containers of older releases lack it.
const hostUserFlag = "--host-user="

func (p *pass) hostUser() passwd.Own {
	return passwd.Own{UID: uint32(p.o.HostUID), GID: uint32(p.o.HostGID), Name: p.sb.Spec.GetDefaultUser()}
}

// entrypoint returns the shim's command line. Settings of the daemon that are not in it can change later.
func (p *pass) entrypoint() []string {
	args := []string{execjournal.ContainerShim, "init", "--gated", ReportFlag, hostUserFlag + p.hostUser().String()}
	if profile.IsHardened(p.profile()) {
		args = append(args, "--hardened")
	}
	security := p.sb.Spec.GetSecurity()
	for _, name := range security.GetCapabilitiesAdd() {
		args = append(args, fmt.Sprintf("--cap=%d", privilege.Capability(name)))
	}
	if security != nil && security.NoNewPrivileges != nil && !security.GetNoNewPrivileges() {
		args = append(args, "--new-privileges")
	}
	if p.doubtsRuntime() {
		args = append(args, ProbeFlag)
	}
	if user := p.sb.Spec.GetUser(); user != "" {
		args = append(args, "--user="+user)
	}
	for _, v := range p.sb.Spec.GetVolumes() {
		args = append(args, "--own="+v.GetTarget())
	}
	for _, dir := range validate.WritableRoots(p.sb.Spec) {
		args = append(args, "--part="+dir)
	}
	if bundle := imageBundle(p.images[""].Env); bundle != "" && inject.Has(p.sb.Spec) {
		args = append(args, "--bundle="+bundle)
	}
	command, image := p.sb.Spec.GetCommand(), p.imageEntrypoint()
	args = append(args, image...)
	if len(command)+len(image) > 0 {
		args = append(args, fmt.Sprintf("--log-limit=%d", p.set.LogLimit))
	}
	if len(command) > 0 {
		args = append(append(args, "--"), command...)
	}
	return args
}

// imageEntrypoint returns the part of the shim's command line by which PID 1 runs the image's ENTRYPOINT; empty: it does not.
func (p *pass) imageEntrypoint() (args []string) {
	image := p.images[""]
	for _, arg := range image.Entrypoint {
		args = append(args, "--entry="+arg)
	}
	switch mode, label := p.sb.Desired.GetConfinement().GetEntrypoint(), image.Labels[naming.Entrypoint]; {
	case len(args) == 0:
	case mode == "run":
		return append(args, "--entry-must")
	case mode == "auto" && label == "run":
		return args
	case mode == "auto" && label == "":
		return append(args, "--entry-new")
	}
	return nil
}

// mounts returns our own mounts, those of the spec and those of its tools.
func (p *pass) mounts() ([]dockerx.Mount, error) {
	paths, err := p.o.Files.Prepare(p.rec.ID)
	if err != nil {
		return nil, err
	}
	mounts := []dockerx.Mount{
		{Source: p.o.ShimDir, Target: path.Dir(execjournal.ContainerShim)},
		{Source: paths.Logs, Target: execjournal.ContainerLogs, Writable: true},
		{Source: paths.Ctl, Target: execjournal.ContainerCtl},
		{Source: paths.Out, Target: execjournal.ContainerOut, Writable: true},
	}
	return append(mounts, p.userMounts()...), nil
}

// userMounts returns the mounts of the spec and of its tools, and the pins and covers inside them. The engine mounts parents first.
func (p *pass) userMounts() (mounts []dockerx.Mount) {
	for _, m := range p.sb.Spec.GetMounts() {
		mounts = append(mounts, dockerx.Mount{Source: m.GetSource(), Target: m.GetTarget(), Writable: m.GetWritable()})
	}
	for _, m := range p.sb.Desired.GetToolMounts() {
		mounts = append(mounts, dockerx.Mount{Source: m.GetSource(), Target: m.GetTarget(), Writable: m.GetWritable()})
	}
	for _, pin := range p.sb.Desired.GetConfinement().GetPins() {
		mounts = append(mounts, dockerx.Mount{Source: pin.GetSource(), Target: pin.GetTarget(), Writable: true})
	}
	for _, c := range p.sb.Desired.GetConfinement().GetCovers() {
		empty := "dir"
		if c.GetFile() {
			empty = "file"
		}
		mounts = append(mounts, dockerx.Mount{Source: path.Join(p.o.CoverDir, empty), Target: c.GetTarget()})
	}
	return mounts
}

// verifySources checks the host paths again before each start: replacing a path by a symbolic link since the accept gains nothing.
func (p *pass) verifySources() error {
	for _, m := range p.sb.Spec.GetMounts() {
		if err := hostfiles.Verify(m.GetSource()); err != nil {
			return err
		}
	}
	for _, m := range p.sb.Desired.GetToolMounts() {
		if err := hostfiles.Verify(m.GetSource()); err != nil {
			return fmt.Errorf("tool %s: %w", m.GetTool(), err)
		}
	}
	for _, pin := range p.sb.Desired.GetConfinement().GetPins() {
		if err := hostfiles.Verify(pin.GetSource()); err != nil {
			return err
		}
	}
	return nil
}

// env returns the environment of the primary.
func (p *pass) env() []string {
	tools := map[string]string{}
	isSocket := func(m *storev1.ToolMount) bool { return m.GetTarget() == sshAgent }
	if slices.ContainsFunc(p.sb.Desired.GetToolMounts(), isSocket) {
		tools["SSH_AUTH_SOCK"] = sshAgent
	}
	if inject.Has(p.sb.Spec) {
		for _, name := range trusting {
			tools[name] = execjournal.ContainerOut + "/" + execjournal.SecretsDir + "/" + execjournal.AuthoritySecret
		}
	}
	return p.envList(tools, p.sb.Spec.GetEnvs())
}

// trusting are the variables that name the file of the authorities that a program trusts: of OpenSSL and what follows it (Go, Python, Ruby, curl), the same
// as Nix builds it, requests and pip, Node.js, curl, git, AWS, Cargo, Deno.
var trusting = []string{
	"SSL_CERT_FILE", "NIX_SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO",
	"DENO_CERT",
}

// imageBundle returns the file of authorities that an image's environment names for OpenSSL; "": none. One below the mount of agboxd is ours: the image was
// made of a sandbox's container.
func imageBundle(env []string) string {
	for _, name := range trusting[:2] {
		for _, one := range env {
			if file, ok := strings.CutPrefix(one, name+"="); ok && path.IsAbs(file) && !strings.HasPrefix(path.Clean(file), execjournal.ContainerOut+"/") {
				return file
			}
		}
	}
	return ""
}

// envList returns what every container has in its environment, and envs. It is sorted, so the same spec always creates the same container.
func (p *pass) envList(envs ...map[string]string) (list []string) {
	all := map[string]string{"HOST_UID": fmt.Sprint(p.o.HostUID), "HOST_GID": fmt.Sprint(p.o.HostGID)}
	for _, env := range envs {
		maps.Copy(all, env)
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		list = append(list, k+"="+all[k])
	}
	return list
}

// serviceSpec describes the container of a service. It runs the image's own program, or the command of the spec, under the engine's init.
// Nothing of agbox runs in it.
func (p *pass) serviceSpec(svc *agboxv1.ServiceSpec, networkID string) (dockerx.ContainerSpec, error) {
	if svc == nil {
		return dockerx.ContainerSpec{}, fmt.Errorf("a step for a service that is not in the spec")
	}
	labels := p.labels(naming.ComponentService)
	labels[naming.ServiceName], labels[naming.Template] = svc.GetName(), svc.GetImage()
	var mounts []dockerx.Mount
	if len(svc.GetSecrets()) > 0 {
		dir, err := p.o.Files.ServiceSecrets(p.rec.ID, svc.GetName())
		if err != nil {
			return dockerx.ContainerSpec{}, err
		}
		mounts = []dockerx.Mount{{Source: dir, Target: validate.ServiceSecrets}}
	}
	init := true
	return dockerx.ContainerSpec{
		Name: naming.Service(p.rec.ID, svc.GetName()), Image: svc.GetImage(), Hostname: svc.GetName(),
		Cmd: svc.GetCommand(), Env: p.envList(svc.GetEnvs()), User: svc.GetUser(), WorkingDir: svc.GetWorkingDir(), Init: &init,
		Labels: labels, Mounts: mounts, NetworkID: networkID, NetworkAliases: []string{svc.GetName()},
		Healthcheck: healthcheck(svc.GetHealthcheck()), Limits: dockerx.Limits(LimitsOf(svc, p.sb.Desired.GetConfinement(), p.set)), Ports: portSpecs(svc.GetPorts()),
		Security: profile.Service(p.profile()),
	}, nil
}

func healthcheck(h *agboxv1.HealthcheckConfig) *dockerx.Healthcheck {
	if h == nil {
		return nil
	}
	return &dockerx.Healthcheck{
		Test: h.GetTest(), Interval: h.GetInterval().AsDuration(), Timeout: h.GetTimeout().AsDuration(),
		StartPeriod: h.GetStartPeriod().AsDuration(), StartInterval: h.GetStartInterval().AsDuration(), Retries: int(h.GetRetries()),
	}
}

func portSpecs(ports []*agboxv1.PortSpec) []dockerx.Port {
	var out []dockerx.Port
	for _, p := range ports {
		out = append(out, dockerx.Port{
			ContainerPort: uint16(p.GetContainerPort()), HostPort: uint16(p.GetHostPort()), Protocol: cmp.Or(p.GetProtocol(), "tcp"),
		})
	}
	return out
}
