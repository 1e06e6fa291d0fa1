package server_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestGatewayKeysAreFoundByTheirOwnText(t *testing.T) {
	f := newFixture(t)
	c := agboxv1.NewGatewayServiceClient(f.declared)
	made, err := c.CreateGatewayKey(t.Context(), &agboxv1.CreateGatewayKeyRequest{})
	f.must(err)
	key := made.GetKey()
	found, err := c.GetGatewayKey(t.Context(), &agboxv1.GetGatewayKeyRequest{Key: key})
	if err != nil || found.GetRecord().GetOwner() != "default" || found.GetRecord().GetKeyId() != key[:16] || found.GetRecord().GetCreatedAt() == nil {
		t.Fatalf("%v, %v", found, err)
	}
	other := "0"
	if key[55:] == "0" {
		other = "1"
	}
	for _, bad := range []string{"", key[:55], key + "0", key[:55] + other} {
		_, err := c.GetGatewayKey(t.Context(), &agboxv1.GetGatewayKeyRequest{Key: bad})
		refused(t, err, codes.NotFound, "GATEWAY_KEY_NOT_FOUND", "the gateway key is not valid", nil)
	}
	_, err = c.CreateGatewayKey(t.Context(), &agboxv1.CreateGatewayKeyRequest{Owner: "a b"})
	refused(t, err, codes.InvalidArgument, "INVALID_SPEC",
		`owner "a b" is not the name of an owner: 1 to 63 ASCII letters, digits, "_", "." and "-", the first and last a letter or digit`, map[string]string{"field": "owner"})
	_, err = c.RevokeGatewayKey(t.Context(), &agboxv1.RevokeGatewayKeyRequest{KeyId: key[:16]})
	f.must(err)
	if list, err := c.ListGatewayKeys(t.Context(), &agboxv1.ListGatewayKeysRequest{}); err != nil || len(list.GetKeys()) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestAListByGatewayOwner has that owner's sandboxes only, and of their specs what a list needs: no environment.
func TestAListByGatewayOwner(t *testing.T) {
	f := newFixture(t)
	for _, owner := range []string{"", "me", "you"} {
		spec := &agboxv1.CreateSpec{Image: "x", Envs: map[string]string{"A": "secret"}}
		if owner != "" {
			spec.Gateway = &agboxv1.GatewaySpec{Owner: owner, Metadata: map[string]string{"k": "v"}}
		}
		_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "box-" + owner + "0", CreateSpec: spec})
		f.must(err)
	}
	list, err := f.ListSandboxes(t.Context(), &agboxv1.ListSandboxesRequest{GatewayOwner: "me"})
	f.must(err)
	if len(list.GetSandboxes()) != 1 || list.GetSandboxes()[0].GetSandboxId() != "box-me0" {
		t.Fatalf("%v", list)
	}
	if spec := list.GetSandboxes()[0].GetSpec(); spec.GetGateway().GetMetadata()["k"] != "v" || spec.GetEnvs() != nil {
		t.Errorf("%v", spec)
	}
}
