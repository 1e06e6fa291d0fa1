package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/host/ipcbounds"
	"github.com/agbox/agbox/store"
)

// maxFieldsBytes bounds the list of paths in an error's metadata.
const maxFieldsBytes = 1024

// errDryRun ends an update after the comparison.
var errDryRun = errors.New("dry run")

// UpdateSandbox implements agbox.v1.SandboxService.
func (s *specs) UpdateSandbox(ctx context.Context, req *agboxv1.UpdateSandboxRequest) (*agboxv1.UpdateSandboxResponse, error) {
	if err := required("sandbox_id", req.GetSandboxId()); err != nil {
		return nil, err
	}
	next, err := s.finalSpec(req)
	if err != nil {
		return nil, err
	}
	if err := validate.Create(next).Err(); err != nil {
		return nil, err
	}
	u := update{specs: s, id: req.GetSandboxId(), next: next, dryRun: req.GetDryRun()}
	if err := u.fits(ctx); err != nil {
		return nil, err
	}
	sb, _, err := s.store.UpdateSpec(ctx, u.id, s.defaultTimeout(), u.compare)
	if errors.Is(err, errDryRun) {
		sb, err = s.store.Sandbox(ctx, u.id)
	}
	if err != nil {
		return nil, err
	}
	return &agboxv1.UpdateSandboxResponse{Sandbox: s.handle(sb, true), ChangedFields: u.changed}, nil
}

// update is the spec that a sandbox should have.
type update struct {
	*specs
	id      string
	next    *agboxv1.CreateSpec
	dryRun  bool
	changed []string // by the last comparison
}

// compare is a store.SpecChange. The engine is asked about limits only: the rest is in its containers already.
func (u *update) compare(old *agboxv1.CreateSpec) (next *agboxv1.CreateSpec, changed []string, limits bool, err error) {
	changed, limits, fixed := validate.Update(old, u.next)
	if len(fixed) > 0 {
		return nil, nil, false, immutable(u.id, fixed)
	}
	if limits {
		err = u.engineRefuses(u.next, nil).Err()
	}
	if err == nil && u.dryRun {
		err = errDryRun
	}
	u.changed = changed
	return u.next, changed, limits, err
}

// immutable names all fields that only a new sandbox can have otherwise.
func immutable(id string, fixed validate.Errors) error {
	fields := make([]string, len(fixed))
	for i, rule := range fixed {
		fields[i] = rule.Field
	}
	return &store.Refusal{
		Reason: "SANDBOX_FIELD_IMMUTABLE", Class: errdefs.ErrFailedPrecondition,
		Metadata: map[string]string{"sandbox_id": id, "fields": joined(fields, maxFieldsBytes)},
		Message:  rules(fixed),
	}
}

// joined is the list with commas, as far as it fits; "..." ends one that does not.
func joined(list []string, limit int) string {
	text := strings.Join(list, ",")
	if len(text) <= limit {
		return text
	}
	return text[:strings.LastIndexByte(text[:limit+1], ',')+1] + "..."
}

// rules joins the texts of the first broken rules and counts the others.
func rules(broken validate.Errors) string {
	shown := broken[:min(len(broken), maxViolations)]
	texts := make([]string, 0, len(shown)+1)
	for _, rule := range shown {
		texts = append(texts, rule.Message)
	}
	if more := len(broken) - len(shown); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// primaryMemory is the memory limit in bytes of the primary of a valid spec, where other is the default; 0: none.
func primaryMemory(spec *agboxv1.CreateSpec, other int64) int64 {
	own, _ := validate.MemoryBytes(spec.GetMemoryLimit())
	return cmp.Or(own, other)
}

// fits refuses a memory limit that the primary's /dev/shm and System V memory, whose bounds are fixed in the container, could use up,
// because then the kernel would kill PID 1. It accepts any limit for sandboxes without recorded bounds.
func (u *update) fits(ctx context.Context) error {
	sb, err := u.store.Sandbox(ctx, u.id)
	if err != nil {
		return err
	}
	if err := u.checkSecrets(sb.Spec, u.next).Err(); err != nil {
		return err
	}
	if err := u.fitsNetwork(sb); err != nil {
		return err
	}
	c := sb.Desired.GetConfinement()
	was, now := primaryMemory(sb.Spec, c.GetMemoryLimitBytes()), primaryMemory(u.next, c.GetMemoryLimitBytes())
	if c == nil || c.PrimaryMemoryBytes == nil || now == 0 || was != 0 && now >= was {
		return nil
	}
	least := ipcbounds.Least(c.GetPrimaryMemoryBytes())
	if now >= least {
		return nil
	}
	const mib = 1 << 20
	return immutable(u.id, validate.Errors{{Field: "memory_limit", Message: fmt.Sprintf("memory_limit is too low for the container that exists, whose /dev/shm and "+
		"System V memory are fixed: choose %dMiB or more, or apply with --replace", (least+mib-1)/mib)}})
}
