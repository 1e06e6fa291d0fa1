package store

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// portClaim is a host port that a spec fixes, such as 8080/tcp, and its field in the spec, named as in package validate.
type portClaim struct{ port, field string }

// portClaims returns the fixed host ports of the primary and of all services, in the order of the spec.
func portClaims(spec *agboxv1.CreateSpec) []portClaim {
	claims := claimsOf(nil, "", spec.GetPorts())
	for _, svc := range spec.GetRequiredServices() {
		claims = claimsOf(claims, fmt.Sprintf("required_services[%s].", svc.GetName()), svc.GetPorts())
	}
	for _, svc := range spec.GetOptionalServices() {
		claims = claimsOf(claims, fmt.Sprintf("optional_services[%s].", svc.GetName()), svc.GetPorts())
	}
	return claims
}

func claimsOf(claims []portClaim, prefix string, ports []*agboxv1.PortSpec) []portClaim {
	for i, p := range ports {
		if p.GetHostPort() == 0 {
			continue
		}
		port := fmt.Sprintf("%d/%s", p.GetHostPort(), cmp.Or(strings.ToLower(p.GetProtocol()), "tcp"))
		claims = append(claims, portClaim{port, fmt.Sprintf("%sports[%d].host_port", prefix, i)})
	}
	return claims
}

// checkPorts refuses sb when a live sandbox other than without has one of its fixed host ports. It reads other specs only if sb has any.
func (t *txn) checkPorts(sb *Sandbox, without string) error {
	claims := portClaims(sb.Spec)
	if len(claims) == 0 {
		return nil
	}
	holders := t.portHolders()
	for _, c := range claims {
		if holder, taken := holders[c.port]; taken && holder != without {
			return &Refusal{
				Reason: "SANDBOX_PORT_ALREADY_IN_USE", Metadata: map[string]string{"sandbox_id": sb.ID, "field": c.field},
				Message: fmt.Sprintf("host port %s is already published by sandbox %s; choose another host port or delete that sandbox",
					c.port, cmp.Or(t.live(holder).Name, holder)),
				Class: errdefs.ErrAlreadyExists,
			}
		}
	}
	return nil
}

func (t *txn) portHolders() map[string]string {
	holders := map[string]string{}
	for _, id := range t.liveIDs() {
		sb := t.live(id)
		if sb.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED || sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE {
			continue
		}
		for _, c := range portClaims(sb.Spec) {
			holders[c.port] = id
		}
	}
	return holders
}
