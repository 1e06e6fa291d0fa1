package server_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
)

// A spec loosens its profile only as far as the configuration allows. A sandbox keeps what was allowed at its accept.
func TestLooseningIsRefusedUnlessTheConfigurationAllowsIt(t *testing.T) {
	off := proto.Bool(false)
	for name, tc := range map[string]struct {
		profile string // of the configuration
		allow   []string
		spec    *agboxv1.SecuritySpec
		refused string // words of the errors; empty: it is accepted
	}{
		"nothing":                        {"hardened", nil, &agboxv1.SecuritySpec{}, ""},
		"a capability":                   {"standard", nil, &agboxv1.SecuritySpec{CapabilitiesAdd: []string{"NET_RAW"}}, `security.capabilities_add: NET_RAW is not allowed here`},
		"one that is allowed":            {"hardened", []string{"NET_RAW"}, &agboxv1.SecuritySpec{CapabilitiesAdd: []string{"NET_RAW"}}, ""},
		"another one":                    {"hardened", []string{"NET_RAW"}, &agboxv1.SecuritySpec{CapabilitiesAdd: []string{"NET_RAW", "SYS_ADMIN"}}, "SYS_ADMIN is not allowed"},
		"no filter":                      {"standard", []string{"NET_RAW"}, &agboxv1.SecuritySpec{Seccomp: "unconfined"}, `"seccomp=unconfined"`},
		"no filter, allowed":             {"standard", []string{"seccomp=unconfined"}, &agboxv1.SecuritySpec{Seccomp: "unconfined"}, ""},
		"new privileges":                 {"hardened", nil, &agboxv1.SecuritySpec{NoNewPrivileges: off}, `"no_new_privileges=false"`},
		"new privileges, allowed":        {"hardened", []string{"no_new_privileges=false"}, &agboxv1.SecuritySpec{NoNewPrivileges: off}, ""},
		"new privileges, as in standard": {"standard", nil, &agboxv1.SecuritySpec{NoNewPrivileges: off}, ""},
		"stricter than standard":         {"standard", nil, &agboxv1.SecuritySpec{NoNewPrivileges: proto.Bool(true), ReadOnlyRoot: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rules := server.Rules{Profile: tc.profile, SecurityAllow: tc.allow}
			k := newFixture(t, func(d *server.Deps) { d.Rules = func() server.Rules { return rules } })
			resp, err := k.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "a", Security: tc.spec}})
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) || !strings.Contains(err.Error(), "security.allow") {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || len(resp.GetSandbox().GetWarnings()) > 0 {
				t.Fatalf("%v, %v", resp, err)
			}
			loose := len(rules.SecurityAllow) > 0
			rules.SecurityAllow = nil
			got, err := k.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: resp.GetSandbox().GetSandboxId()})
			if warned := len(got.GetSandbox().GetWarnings()) > 0; err != nil || warned != loose {
				t.Errorf("no longer allowed: %v, %v", got, err)
			}
		})
	}
}
