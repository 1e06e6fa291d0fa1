package store

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Caller is who requests a sandbox or an exec, which then counts for them.
type Caller struct {
	// Name is that of the audit log, such as "uid:1000" or "tls:alice". Empty: unknown; nothing counts for it.
	Name string
	// Gateway: requests about a sandbox of a gateway's key count for the owner of the key.
	Gateway bool
	// Limit is the most objects of the requested kind that the caller may have; 0: no limit.
	Limit int
	// PendingLimit is the most sandboxes of the caller that may be PENDING, for a create; 0: no limit.
	PendingLimit int
}

// gatewayCaller precedes the owner of a gateway's key in the name of a caller.
const gatewayCaller = "e2b:"

// maxCallerBytes bounds the name of a caller in a record: that of a certificate may be longer.
const maxCallerBytes = 256

// of returns who creates a sandbox with the spec.
func (c Caller) of(spec *agboxv1.CreateSpec) string {
	if owner := spec.GetGateway().GetOwner(); c.Gateway && owner != "" {
		return gatewayCaller + owner
	}
	return valid(c.Name[:min(len(c.Name), maxCallerBytes)])
}

// in returns who creates an exec in the sandbox.
func (c Caller) in(sb *Sandbox) string {
	if owner := sb.Desired.GetCaller(); c.Gateway && strings.HasPrefix(owner, gatewayCaller) {
		return owner
	}
	return c.of(nil)
}

// usage is what a caller has: live sandboxes, in any state and of them those that are PENDING, and active execs.
type usage struct{ sandboxes, pending, execs int }

// activeExec is an exec that has not ended.
type activeExec struct{ sandboxID, caller string }

// usage returns what a caller has, with the changes staged by this request.
func (t *txn) usage(caller string) usage {
	if u, changed := t.changes.usage[caller]; changed {
		return u
	}
	return latest(t.group.usage, t.index.usage, caller)
}

// count stages a change of what a caller has.
func (t *txn) count(caller string, change usage) {
	if caller == "" {
		return
	}
	t.changes.usage[caller] = t.usage(caller).plus(change)
}

func (u usage) plus(change usage) usage {
	return usage{u.sandboxes + change.sandboxes, u.pending + change.pending, u.execs + change.execs}
}

// loadUsage counts what callers have. The writer does not run yet.
func (f facts) loadUsage() {
	for _, sb := range f.sandboxes {
		f.has(sb.Desired.GetCaller(), usage{sandboxes: 1, pending: pendingIn(sb.State)})
	}
	for _, e := range f.execs {
		f.has(e.caller, usage{execs: 1})
	}
}

// pendingIn returns 1 for PENDING.
func pendingIn(s agboxv1.SandboxState) int {
	if s == agboxv1.SandboxState_SANDBOX_STATE_PENDING {
		return 1
	}
	return 0
}

func (f facts) has(caller string, more usage) {
	if caller != "" {
		f.usage[caller] = f.usage[caller].plus(more)
	}
}

// refuseCaller refuses one more object to a caller who has as many as the key of the configuration allows. what are the objects, wayOut is
// what makes room for another.
func refuseCaller(caller string, has, limit int, key, what, wayOut string) error {
	if caller == "" || limit < 1 || has < limit {
		return nil
	}
	return &Refusal{
		Class: errdefs.ErrResourceExhausted, Reason: "CALLER_LIMIT",
		Metadata: map[string]string{"limit": key, "limit_value": strconv.Itoa(limit), "used": strconv.Itoa(has), "caller": caller},
		Message:  fmt.Sprintf("%s has %d of at most %d %s; %s, or have the operator of agboxd raise %s", caller, has, limit, what, wayOut, key),
	}
}
