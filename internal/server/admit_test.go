package server_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// repeated is a spec with so many empty values of a field, which no client's own code could make.
func repeated(field protowire.Number, n int) *agboxv1.CreateSpec {
	spec := &agboxv1.CreateSpec{Image: "x"}
	unit := protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), nil)
	spec.ProtoReflect().SetUnknown(bytes.Repeat(unit, n))
	return spec
}

func TestARequestThatCostsTooMuchNamesItsField(t *testing.T) {
	f := newFixture(t)
	for field, req := range map[string]*agboxv1.CreateSandboxRequest{
		"create_spec.required_services": {CreateSpec: repeated(5, 2_000_000)},
		"create_spec.mounts":            {CreateSpec: repeated(2, 2_000_000)},
		"create_spec.labels":            {CreateSpec: repeated(7, 1_000_000)},
		"create_spec.builtin_tools":     {CreateSpec: repeated(4, 2_000_000)},
		"config_yaml":                   {ConfigYaml: bytes.Repeat([]byte("#\n"), 1<<20-1)},
	} {
		_, err := f.CreateSandbox(t.Context(), req)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "192 MiB") {
			t.Errorf("%s: %v", field, err)
		}
		if got := f.seen[agboxv1.SandboxService_CreateSandbox_FullMethodName]; got != codes.InvalidArgument {
			t.Errorf("%s: the outcome is counted as %s", field, got)
		}
	}
}

// TestTheLargestSpecsAreAdmitted: what the rules allow is never refused for its cost.
func TestTheLargestSpecsAreAdmitted(t *testing.T) {
	f := newFixture(t)
	envs := func(n, value int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprintf("E%d", i)] = strings.Repeat("v", value)
		}
		return m
	}
	many := &agboxv1.CreateSpec{Image: "x", Envs: envs(4096, 4)}
	for i := range 20 {
		many.OptionalServices = append(many.OptionalServices, &agboxv1.ServiceSpec{Name: fmt.Sprintf("s%d", i), Image: "x", Envs: envs(4096, 1)})
	}
	json := strings.Repeat(`{"key": [1, "two"]},`, 15_000)
	for name, req := range map[string]*agboxv1.CreateSandboxRequest{
		"many small values": {CreateSpec: many},
		"large values":      {CreateSpec: &agboxv1.CreateSpec{Image: "x", Envs: envs(8, 120<<10)}},
		"much YAML":         {ConfigYaml: []byte("image: x\nenvs:\n  A: '" + json[:100_000] + "'\n# " + strings.Repeat("c", 1<<20) + "\n# " + json + "\n")},
	} {
		if _, err := f.CreateSandbox(t.Context(), req); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARequestThatDoesNotDecodeIsInvalid(t *testing.T) {
	f := newFixture(t)
	req := &agboxv1.GetSandboxRequest{}
	req.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff"))
	if _, err := f.GetSandbox(t.Context(), req); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a call: %v", err)
	}
	sub := &agboxv1.SubscribeSandboxEventsRequest{}
	sub.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := f.SubscribeSandboxEvents(ctx, sub)
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a stream: %v", err)
	}
}
