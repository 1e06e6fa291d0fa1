package client

import (
	"context"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// CreateGatewayKey makes an API key for an owner of sandboxes; empty: "default". Only the answer has the key itself.
func (c *Client) CreateGatewayKey(ctx context.Context, owner string) (*agboxv1.CreateGatewayKeyResponse, error) {
	return call(ctx, c, c.gateways.CreateGatewayKey, &agboxv1.CreateGatewayKeyRequest{Owner: owner})
}

// GatewayKeys reads the records of all API keys, oldest first.
func (c *Client) GatewayKeys(ctx context.Context) ([]*agboxv1.GatewayKey, error) {
	resp, err := read(ctx, c, c.gateways.ListGatewayKeys, &agboxv1.ListGatewayKeysRequest{})
	return resp.GetKeys(), err
}

// RevokeGatewayKey removes an API key by its ID.
func (c *Client) RevokeGatewayKey(ctx context.Context, keyID string) error {
	return request(ctx, c, c.gateways.RevokeGatewayKey, &agboxv1.RevokeGatewayKeyRequest{KeyId: keyID})
}

// GatewayKey finds the record of an API key. An error that IsNotFound: the key is not valid.
func (c *Client) GatewayKey(ctx context.Context, key string) (*agboxv1.GatewayKey, error) {
	resp, err := read(ctx, c, c.gateways.GetGatewayKey, &agboxv1.GetGatewayKeyRequest{Key: key})
	return resp.GetRecord(), err
}

// GatewaySecret returns the secret from which gateways derive tokens.
func (c *Client) GatewaySecret(ctx context.Context) ([]byte, error) {
	resp, err := read(ctx, c, c.gateways.GetGatewaySecret, &agboxv1.GetGatewaySecretRequest{})
	return resp.GetSecret(), err
}

// GatewaySandboxPage reads the live sandboxes that the gateways' clients of an owner created, those that the request selects, in its order.
// Their specs have no environment, mounts and services.
func (c *Client) GatewaySandboxPage(ctx context.Context, req *agboxv1.ListSandboxesRequest) ([]*agboxv1.SandboxHandle, error) {
	resp, err := read(ctx, c, c.sandboxes.ListSandboxes, req)
	return resp.GetSandboxes(), err
}

// GatewaySandboxes reads the live sandboxes that the gateways' clients of an owner created, newest first. Their specs have no environment,
// mounts and services.
func (c *Client) GatewaySandboxes(ctx context.Context, owner string) ([]*agboxv1.SandboxHandle, error) {
	resp, err := read(ctx, c, c.sandboxes.ListSandboxes, &agboxv1.ListSandboxesRequest{GatewayOwner: owner})
	return resp.GetSandboxes(), err
}
