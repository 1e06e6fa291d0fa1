package server_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/server"
)

// What a create makes of a policy, by the configuration and by whether the host can enforce one.
func TestCreateResolvesTheNetworkPolicy(t *testing.T) {
	const noFilter = "agboxd cannot set packet filter rules: operation not permitted"
	closed, open := &agboxv1.NetworkSpec{Mode: "internal"}, &agboxv1.NetworkSpec{Mode: "open"}
	services := []*agboxv1.ServiceSpec{{Name: "db", Image: "db"}}
	for _, tt := range []struct {
		name     string
		rules    server.Rules
		problem  string
		policy   *agboxv1.NetworkSpec
		services []*agboxv1.ServiceSpec
		mode     string // in the answer
		refused  string // part of the refusal
		warned   bool
	}{
		{name: "no configuration", mode: "open"},
		{name: "the default", rules: server.Rules{NetworkMode: "internet"}, mode: "internet"},
		{name: "its own", rules: server.Rules{NetworkMode: "internet"}, policy: closed, mode: "internal"},
		{name: "no filter", rules: server.Rules{NetworkMode: "internet"}, problem: noFilter, mode: "open", warned: true},
		{name: "no filter, and open by default", problem: noFilter, mode: "open"},
		{name: "no filter, and open", rules: server.Rules{NetworkMode: "internet", NetworkRequired: true}, problem: noFilter, policy: open, mode: "open"},
		{name: "no filter, and required", rules: server.Rules{NetworkMode: "internet", NetworkRequired: true}, problem: noFilter, refused: "runtime.network_required"},
		{name: "no filter for its own", problem: noFilter, policy: closed, refused: "operation not permitted"},
		{
			name: "no filter for an exception", problem: noFilter, policy: &agboxv1.NetworkSpec{Mode: "open", Deny: []string{"10.0.0.1"}},
			refused: "operation not permitted",
		},
		{name: "none by default, and services", rules: server.Rules{NetworkMode: "none"}, services: services, refused: "write {mode: internal}"},
		{name: "none by default, and internal", rules: server.Rules{NetworkMode: "none"}, services: services, policy: closed, mode: "internal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, func(d *server.Deps) {
				d.Rules = func() server.Rules { return tt.rules }
				d.NetworkProblem = func() string { return tt.problem }
			})
			answer, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{
				CreateSpec: &agboxv1.CreateSpec{Image: "image", Network: tt.policy, OptionalServices: tt.services},
			})
			if tt.refused != "" {
				if status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), tt.refused) {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := answer.GetSandbox()
			warned := slices.ContainsFunc(got.GetWarnings(), func(w string) bool { return strings.Contains(w, tt.problem) })
			if got.GetNetworkMode() != tt.mode || tt.problem != "" && warned != tt.warned {
				t.Errorf("mode %q, warnings %q", got.GetNetworkMode(), got.GetWarnings())
			}
		})
	}
}

// An engine that was upgraded may answer names past a policy.
func TestWarningOfAnEngineThatPassesThePolicy(t *testing.T) {
	upgraded := false
	f := newFixture(t, func(d *server.Deps) {
		d.EngineRefuses = func(*agboxv1.CreateSpec, *storev1.Confinement) validate.Errors {
			if !upgraded {
				return nil
			}
			return validate.Errors{{Field: "memory_limit", Message: "memory_limit is too new"}, {Field: "network", Message: "network goes past"}}
		}
	})
	for _, upgraded = range []bool{false, true} {
		spec := &agboxv1.CreateSpec{Image: "x", Network: &agboxv1.NetworkSpec{Mode: "internal"}}
		if !upgraded {
			_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "box1", CreateSpec: spec})
			f.must(err)
		}
		answer, err := f.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: "box1"})
		f.must(err)
		got := strings.Join(answer.GetSandbox().GetWarnings(), "; ")
		if strings.Contains(got, "network goes past") != upgraded || strings.Contains(got, "memory_limit") {
			t.Errorf("upgraded %v: %q", upgraded, got)
		}
	}
}

// An update to a policy that cannot be enforced is refused; one to an open policy is not, nor the removal of a policy from a sandbox whose
// recorded mode is open.
func TestUpdateOfTheNetworkPolicy(t *testing.T) {
	problem := ""
	f := newFixture(t, func(d *server.Deps) {
		d.Rules = func() server.Rules { return server.Rules{NetworkMode: "internet"} }
		d.NetworkProblem = func() string { return problem }
	})
	for _, id := range []string{"made-open", "made-closed"} {
		if id == "made-open" {
			problem = "agboxd has no packet filter"
		}
		_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: "x"}})
		f.must(err)
		problem = ""
	}
	update := func(id, mode string) (*agboxv1.UpdateSandboxResponse, error) {
		spec := &agboxv1.CreateSpec{Image: "x"}
		if mode != "" {
			spec.Network = &agboxv1.NetworkSpec{Mode: mode}
		}
		return f.update(id, spec, false)
	}
	for _, step := range []struct {
		id, mode, problem, want string // want "" is a refusal
	}{
		{"made-open", "none", "", "none"},
		{"made-open", "", "", "open"},
		{"made-open", "internal", "no privilege", ""},
		{"made-open", "open", "no privilege", "open"},
		{"made-closed", "open", "", "open"},
		{"made-closed", "", "no privilege", ""},
		{"made-closed", "", "", "internet"},
	} {
		problem = step.problem
		answer, err := update(step.id, step.mode)
		if step.want == "" {
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(fmt.Sprint(err), step.problem) {
				t.Errorf("%v: %v", step, err)
			}
			continue
		}
		if err != nil || answer.GetSandbox().GetNetworkMode() != step.want {
			t.Errorf("%v: %v, %v", step, answer.GetSandbox().GetNetworkMode(), err)
		}
	}
}

// A policy that decides on names needs an engine that can hold it for these containers, unless the sandbox has such a policy already. What
// containers get at the create is on record.
func TestAPolicyAboutNamesInPlace(t *testing.T) {
	const refusal = "network decides on names"
	var recorded []string
	holds := true
	f := newFixture(t, func(d *server.Deps) {
		d.Rules = func() server.Rules {
			return server.Rules{NetworkMode: "internet", Resolvers: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.53")} }}
		}
		d.EngineRefuses = func(_ *agboxv1.CreateSpec, c *storev1.Confinement) validate.Errors {
			recorded = c.GetDnsServers()
			if holds {
				return nil
			}
			return validate.Errors{{Field: "network", Message: refusal}, {Field: "gpus", Message: "another part of the engine"}}
		}
	})
	accept := func(id string, policy *agboxv1.NetworkSpec, servers int) {
		t.Helper()
		_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: "x", Network: policy}})
		f.must(err)
		if len(recorded) != servers {
			t.Errorf("%s has the DNS servers %v", id, recorded)
		}
	}
	closed := &agboxv1.NetworkSpec{Mode: "internal"}
	accept("plain", nil, 0)
	accept("closed", closed, 1)
	accept("names", &agboxv1.NetworkSpec{Mode: "internet", Deny: []string{"a.example"}}, 1)
	holds = false
	for _, tt := range []struct {
		id      string
		policy  *agboxv1.NetworkSpec
		refused bool
	}{
		{"plain", closed, true},
		{"closed", &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"10.0.0.1"}}, false},
		{"names", closed, false},
	} {
		_, err := f.update(tt.id, &agboxv1.CreateSpec{Image: "x", Network: tt.policy}, false)
		if refused := status.Code(err) == codes.InvalidArgument && strings.Contains(status.Convert(err).Message(), refusal); refused != tt.refused || err != nil && !refused {
			t.Errorf("%s: %v", tt.id, err)
		}
	}
}
