package server

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/internal/host/mountpolicy"
	"github.com/agbox/agbox/internal/manifest"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/store"
)

type specStore interface {
	CheckCreate(ctx context.Context, id, name string, spec *agboxv1.CreateSpec, by store.Caller, without string) error
	CreateSandbox(ctx context.Context, id, name string, spec *agboxv1.CreateSpec, r *store.Resolved) (store.Sandbox, error)
	UpdateSpec(ctx context.Context, id string, timeout time.Duration, change store.SpecChange) (sb store.Sandbox, changed []string, err error)
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
}

// specs handles the calls that carry a spec.
type specs struct {
	*handles
	store        specStore
	callerLimits func() CallerLimits
	home         string
}

// CreateSandbox implements agbox.v1.SandboxService. It checks in stages: the rules; this host and the engine;
// conflicts with other sandboxes. Each stage reports all its mistakes, and runs only if the one before found none.
func (s *specs) CreateSandbox(ctx context.Context, req *agboxv1.CreateSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	spec, err := s.finalSpec(req)
	if err != nil {
		return nil, err
	}
	if err := checkCreate(req, spec).Err(); err != nil {
		return nil, err
	}
	resolved, broken := s.checkHost(spec)
	if err := append(broken, s.engineRefuses(spec, resolved.Confinement)...).Err(); err != nil {
		return nil, err
	}
	id := cmp.Or(req.GetSandboxId(), uuid.NewString())
	sb := store.Sandbox{ID: id, Name: req.GetName(), Spec: spec, Desired: &storev1.Desired{Confinement: resolved.Confinement}}
	limits := s.callerLimits()
	by := callerIn(ctx, limits.Sandboxes)
	by.PendingLimit = limits.Pending
	if req.GetDryRun() {
		err = s.store.CheckCreate(ctx, id, req.GetName(), spec, by, req.GetReplaces())
	} else {
		resolved.Caller = by
		sb, err = s.store.CreateSandbox(ctx, id, req.GetName(), spec, resolved)
	}
	if err != nil {
		return nil, err
	}
	return &agboxv1.CreateSandboxResponse{Sandbox: s.handle(sb, true)}, nil
}

// specRequest is a request with a spec in two parts.
type specRequest interface {
	GetCreateSpec() *agboxv1.CreateSpec
	GetConfigYaml() []byte
}

// finalSpec merges create_spec over config_yaml and gives the result its one form, with host paths resolved on this host.
func (s *specs) finalSpec(req specRequest) (*agboxv1.CreateSpec, error) {
	spec, err := s.mergedSpec(req)
	if err == nil {
		hostfiles.ResolveParents(spec)
	}
	return spec, err
}

func (s *specs) mergedSpec(req specRequest) (*agboxv1.CreateSpec, error) {
	if len(req.GetConfigYaml()) == 0 {
		if req.GetCreateSpec() == nil {
			return nil, invalid("create_spec", "create_spec is required")
		}
		return validate.Normalize(req.GetCreateSpec()), nil
	}
	base, err := manifest.ParseSpec(req.GetConfigYaml(), s.home)
	if err != nil {
		return nil, invalid("config_yaml", "invalid config_yaml: "+err.Error())
	}
	return validate.Normalize(manifest.Merge(base, req.GetCreateSpec())), nil
}

func checkCreate(req *agboxv1.CreateSandboxRequest, spec *agboxv1.CreateSpec) (broken validate.Errors) {
	if req.GetSandboxId() != "" {
		broken = append(broken, validate.SandboxID(req.GetSandboxId())...)
	}
	if req.GetName() != "" {
		broken = append(broken, validate.Name(req.GetName())...)
		broken = append(broken, validate.NameOfService(req.GetName(), spec)...)
	}
	broken = append(broken, validate.Create(spec)...)
	broken = append(broken, validate.NameForVolumes(req.GetName(), spec)...)
	if req.GetReplaces() != "" && !req.GetDryRun() {
		broken = append(broken, validate.Error{Field: "replaces", Message: "replaces is for a dry_run only: delete that sandbox first"})
	}
	return broken
}

// checkSecrets checks the files of secrets under the policy for read-only mounts, but for those that a spec had before: a file that has
// vanished since is no reason to refuse other changes.
func (s *specs) checkSecrets(before, spec *agboxv1.CreateSpec) validate.Errors {
	had := hostfiles.SecretFiles(before)
	return hostfiles.CheckSecrets(spec, func(file string) bool { return slices.Contains(had, file) }, func(path string) string {
		return s.rules().Mounts.Refuses(path, mountpolicy.Use{})
	})
}

// checkHost checks the host paths that the spec names, resolves the tools' paths, and applies the rules in force.
func (s *specs) checkHost(spec *agboxv1.CreateSpec) (*store.Resolved, validate.Errors) {
	broken := hostfiles.CheckMounts(spec.GetMounts())
	broken = append(broken, hostfiles.CheckCopies(spec.GetCopies())...)
	tools, missing := hostfiles.ResolveTools(spec.GetBuiltinTools(), s.home, os.Getenv)
	rules := s.rules()
	broken = append(broken, missing...)
	broken = append(broken, s.checkSecrets(nil, spec)...)
	hidden, refused := judgeMounts(rules.Mounts, mountsOf(spec, tools))
	if len(broken) == 0 { // an invalid path has one mistake only
		broken = slices.Concat(refused, judgeCopies(rules.Mounts, spec.GetCopies()))
	}
	mode, refused := s.acceptNetwork(spec)
	broken = append(broken, refused...)
	c := &storev1.Confinement{
		NetworkMode: mode,
		Profile:     cmp.Or(spec.GetSecurity().GetProfile(), rules.Profile, "standard"), MemoryLimitBytes: rules.MemoryLimit,
		Entrypoint: cmp.Or(spec.GetEntrypoint(), rules.Entrypoint, "auto"), Covers: hidden.covers, Pins: hidden.pins, PrimaryMemoryBytes: proto.Int64(primaryMemory(spec, rules.MemoryLimit)),
	}
	if netrules.RulesNames(netrules.ModeOf(spec.GetNetwork(), mode), spec) && rules.Resolvers != nil {
		for _, a := range rules.Resolvers() {
			c.DnsServers = append(c.DnsServers, a.String())
		}
	}
	if c.Profile == "hardened" && spec.GetEntrypoint() == "run" {
		broken = append(broken, validate.Error{
			Field: "entrypoint", Message: `entrypoint: the security profile "hardened" does not run an ENTRYPOINT, which would be root: write "skip", or take the profile "standard"`,
		})
	}
	return &store.Resolved{Tools: tools, Confinement: c}, append(broken, refuseLoosenings(spec, c.GetProfile(), rules.SecurityAllow)...)
}

// refuseLoosenings returns an error for each setting that loosens the profile and that the configuration does not allow.
func refuseLoosenings(spec *agboxv1.CreateSpec, profile string, allowed []string) (broken validate.Errors) {
	for _, l := range validate.Loosenings(spec.GetSecurity(), profile) {
		if !slices.Contains(allowed, l.Word) {
			broken = append(broken, validate.Error{
				Field: l.Field, Message: fmt.Sprintf("%s: %s is not allowed here: leave it out, or have %q added to security.allow in the daemon's configuration", l.Field, l.Word, l.Word),
			})
		}
	}
	return broken
}

// securityWarnings lists the settings of a sandbox that the configuration no longer allows. Its containers stay as they are.
func (s *handles) securityWarnings(sb store.Sandbox) (all []string) {
	for _, b := range refuseLoosenings(sb.Spec, sb.Desired.GetConfinement().GetProfile(), s.rules().SecurityAllow) {
		all = append(all, b.Message+"; this sandbox was accepted earlier and keeps it")
	}
	return all
}
