package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	units "github.com/docker/go-units"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/termsafe"
)

// describeSpec shows the spec, with the present state of its services and ports.
func (a *app) describeSpec(sb *agboxv1.SandboxHandle) {
	spec := sb.GetSpec()
	a.fact("Image", spec.GetImage())
	a.factIf("Command", termsafe.Line(strings.Join(spec.GetCommand(), " ")))
	a.factIf("Entrypoint", spec.GetEntrypoint())
	a.factIf("User", spec.GetUser())
	a.factIf("Default user", spec.GetDefaultUser())
	a.factIf("Directory", spec.GetWorkingDir())
	a.fact("Limits", limits(spec.GetCpuLimit(), memoryInForce(spec.GetMemoryLimit(), sb), spec.GetDiskLimit(), spec.GetPidsLimit()))
	a.factIf("GPUs", spec.GetGpus())
	a.factIf("Runtime", spec.GetRuntime())
	a.factIf("Created by", sb.GetCreatedBy())
	a.factIf("Security", securityText(sb))
	a.factIf("Network", networkText(sb))
	a.factIf("Channel", channelText(sb.GetChannel()))
	a.factIf("Restart", spec.GetRestartPolicy())
	a.factIf("Log limit", spec.GetOnLogLimit())
	a.fact("Idle stop", idleStop(spec))
	a.factIf("Auto-resume", textIf(spec.GetAutoResume(), "by a command while it is PAUSED"))
	a.factIf("Kept", textIf(spec.GetKeepStopped(), "while it is STOPPED or PAUSED"))
	a.factIf("Gateway", gatewayText(spec.GetGateway()))
	a.fact("Labels", termsafe.Line(strings.Join(pairs(spec.GetLabels()), ", ")))
	a.fact("Envs", strings.Join(slices.Sorted(maps.Keys(spec.GetEnvs())), ", "))
	a.factIf("Tools", strings.Join(spec.GetBuiltinTools(), ", "))
	a.lines("Mounts", mountLines(spec.GetMounts()))
	a.lines("Volumes", volumeLines(spec))
	a.lines("Copies", copyLines(spec.GetCopies()))
	a.lines("Secrets", secretLines(spec))
	a.lines("Warnings", sb.GetWarnings())
	a.lines("Ports", portLines(sb))
	a.describeServices(sb)
}

// securityText is the profile, and what differs from it.
func securityText(sb *agboxv1.SandboxHandle) string {
	text, s := sb.GetSecurityProfile(), sb.GetSpec().GetSecurity()
	if s.GetReadOnlyRoot() {
		text += "; read-only root"
	}
	if added := s.GetCapabilitiesAdd(); len(added) > 0 {
		text += "; with " + strings.Join(added, ", ")
	}
	if s.GetSeccomp() != "" {
		text += "; seccomp " + s.GetSeccomp()
	}
	if s != nil && s.NoNewPrivileges != nil {
		text += fmt.Sprintf("; no-new-privileges %v", s.GetNoNewPrivileges())
	}
	return termsafe.Line(text)
}

// networkText is one line about the network policy.
func networkText(sb *agboxv1.SandboxHandle) string {
	text, policy := sb.GetNetworkMode(), sb.GetSpec().GetNetwork()
	if allow := policy.GetAllow(); len(allow) > 0 {
		text += "; allows " + some(allow)
	}
	if policy.GetVerifyNames() {
		text += "; verifies names"
	}
	if deny := policy.GetDeny(); len(deny) > 0 {
		text += "; denies " + some(deny)
	}
	return termsafe.Line(text)
}

// someEntries is how many entries of a list are shown in one line.
const someEntries = 5

func some(entries []string) string {
	if more := len(entries) - someEntries; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(entries[:someEntries], ", "), more)
	}
	return strings.Join(entries, ", ")
}

func gatewayText(g *agboxv1.GatewaySpec) string {
	if g == nil {
		return ""
	}
	text := fmt.Sprintf("for %s, template %s", g.GetOwner(), g.GetTemplate())
	if g.GetPrivateTraffic() {
		text += ", ports need a token"
	}
	return termsafe.Line(text)
}

func (a *app) describeServices(sb *agboxv1.SandboxHandle) {
	status := map[string]*agboxv1.ServiceStatus{}
	for _, s := range sb.GetServices() {
		status[s.GetName()] = s
	}
	t := newTable(a.Out, false)
	t.add("  SERVICE", "NEEDED", "STATE", "RESTARTS", "LIMITS", "IMAGE")
	for i, s := range slices.Concat(sb.GetSpec().GetRequiredServices(), sb.GetSpec().GetOptionalServices()) {
		needed := "required"
		if i >= len(sb.GetSpec().GetRequiredServices()) {
			needed = "optional"
		}
		now := status[s.GetName()]
		t.add("  "+clip(s.GetName(), nameWidth), needed, dash(now.GetState()), strconv.Itoa(int(now.GetRestarts())),
			limits(s.GetCpuLimit(), memoryInForce(s.GetMemoryLimit(), sb), "", s.GetPidsLimit()), s.GetImage())
	}
	if len(t.rows) == 1 {
		return
	}
	fmt.Fprintln(a.Out, "Services:")
	t.write(a.Out)
	for _, s := range sb.GetServices() {
		if s.GetErrorCode() != "" {
			fmt.Fprintf(a.Out, "  %s: %s\n", s.GetName(), termsafe.Line(joinError(s.GetErrorCode(), s.GetErrorMessage())))
		}
	}
}

// memoryInForce returns the memory limit of a container: that of its spec, or the default when the sandbox was accepted.
func memoryInForce(own string, sb *agboxv1.SandboxHandle) string {
	if own != "" || sb.GetDefaultMemoryBytes() == 0 {
		return own
	}
	return units.BytesSize(float64(sb.GetDefaultMemoryBytes())) + " (default)"
}

func limits(cpu float64, memory, disk string, pids uint32) string {
	return dash(strings.Join(nonEmpty([]string{
		textIf(cpu > 0, "cpu "+strconv.FormatFloat(cpu, 'g', -1, 64)), given("memory ", memory, ""), given("disk ", disk, ""),
		textIf(pids > 0, fmt.Sprintf("pids %d", pids)),
	}), ", "))
}

func idleStop(spec *agboxv1.CreateSpec) string {
	switch ttl := spec.GetIdleTtl(); {
	case ttl == nil:
		return "the daemon's default"
	case ttl.AsDuration() == 0:
		return "never"
	default:
		return span(ttl.AsDuration())
	}
}

func pairs(m map[string]string) []string {
	all := slices.Sorted(maps.Keys(m))
	for i, key := range all {
		all[i] = key + "=" + m[key]
	}
	return all
}

func mountLines(mounts []*agboxv1.MountSpec) (lines []string) {
	for _, m := range mounts {
		access := "read-only"
		if m.GetWritable() {
			access = "writable"
		}
		lines = append(lines, fmt.Sprintf("%s on %s, %s", m.GetSource(), m.GetTarget(), access))
	}
	return lines
}

func volumeLines(spec *agboxv1.CreateSpec) (lines []string) {
	add := func(service string, volumes []*agboxv1.VolumeSpec) {
		for _, v := range volumes {
			lines = append(lines, fmt.Sprintf("%s on %s%s", v.GetName(), v.GetTarget(), ofService(service)))
		}
	}
	add("", spec.GetVolumes())
	for _, s := range slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()) {
		add(s.GetName(), s.GetVolumes())
	}
	return lines
}

// secretLines shows where the values of secrets are, never the values.
func secretLines(spec *agboxv1.CreateSpec) (lines []string) {
	add := func(service string, secrets []*agboxv1.SecretSpec) {
		for _, s := range secrets {
			at := given(" at ", s.GetTarget(), "")
			if hosts := injectedHosts(s); hosts != "" {
				at += ", added to requests for " + hosts
			}
			at = cmp.Or(at, ", not delivered")
			lines = append(lines, fmt.Sprintf("%s of %s%s%s", s.GetName(), s.GetFile(), at, ofService(service)))
		}
	}
	add("", spec.GetSecrets())
	for _, s := range slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()) {
		add(s.GetName(), s.GetSecrets())
	}
	return lines
}

func injectedHosts(s *agboxv1.SecretSpec) string {
	var hosts []string
	for _, r := range s.GetInject() {
		hosts = append(hosts, r.GetHost())
	}
	return strings.Join(hosts, ", ")
}

func copyLines(copies []*agboxv1.CopySpec) (lines []string) {
	for _, c := range copies {
		without := given(", without ", strings.Join(c.GetExcludePatterns(), ", "), "")
		lines = append(lines, fmt.Sprintf("%s to %s%s", c.GetSource(), c.GetTarget(), without))
	}
	return lines
}

// portLines shows the published ports, and the ports of the spec if the sandbox does not run.
func portLines(sb *agboxv1.SandboxHandle) (lines []string) {
	for _, p := range sb.GetPorts() {
		lines = append(lines, fmt.Sprintf("127.0.0.1:%d -> %d/%s%s", p.GetHostPort(), p.GetContainerPort(), p.GetProtocol(), ofService(p.GetServiceName())))
	}
	if len(lines) > 0 {
		return lines
	}
	add := func(service string, ports []*agboxv1.PortSpec) {
		for _, p := range ports {
			lines = append(lines, fmt.Sprintf("%d/%s%s, not published now", p.GetContainerPort(), cmp.Or(p.GetProtocol(), "tcp"), ofService(service)))
		}
	}
	add("", sb.GetSpec().GetPorts())
	for _, s := range slices.Concat(sb.GetSpec().GetRequiredServices(), sb.GetSpec().GetOptionalServices()) {
		add(s.GetName(), s.GetPorts())
	}
	return lines
}

func ofService(name string) string { return given(" of service ", name, "") }

// lines prints a heading and lines below it, or nothing if there are none.
func (a *app) lines(heading string, all []string) {
	if len(all) > 0 {
		fmt.Fprintln(a.Out, heading+":")
	}
	for _, line := range all {
		fmt.Fprintln(a.Out, "  "+termsafe.Line(line))
	}
}

func (a *app) factIf(name, value string) {
	if value != "" {
		a.fact(name, value)
	}
}

// channelText says how the daemon reaches into a sandbox.
func channelText(channel string) string {
	switch channel {
	case "files":
		return "none: commands have no standard input or terminal, files and ports can't be reached"
	case "archive":
		return "none while it does not run: its files are read through the engine"
	}
	return channel
}
