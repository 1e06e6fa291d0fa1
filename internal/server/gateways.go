package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/store"
)

// Lengths of gateway keys in hexadecimal digits.
const (
	keyDigits   = 56
	keyIDDigits = 16
)

type gatewayStore interface {
	CreateGatewayKey(ctx context.Context, id string, key *storev1.GatewayKey) error
	RevokeGatewayKey(ctx context.Context, id string) error
	GatewayKey(ctx context.Context, id string) (*storev1.GatewayKey, error)
	GatewayKeys(ctx context.Context) (map[string]*storev1.GatewayKey, error)
	GatewaySecret(ctx context.Context) ([]byte, error)
}

// gateways handles the calls about API keys.
type gateways struct{ store gatewayStore }

// CreateGatewayKey implements agbox.v1.GatewayService.
func (s *gateways) CreateGatewayKey(ctx context.Context, req *agboxv1.CreateGatewayKeyRequest) (*agboxv1.CreateGatewayKeyResponse, error) {
	req.Owner = cmp.Or(req.GetOwner(), "default")
	if err := validate.GatewayKey(req).Err(); err != nil {
		return nil, err
	}
	random := make([]byte, keyDigits/2)
	_, _ = rand.Read(random) // it never returns an error
	key := hex.EncodeToString(random)
	if err := s.store.CreateGatewayKey(ctx, key[:keyIDDigits], &storev1.GatewayKey{Owner: req.GetOwner(), Hash: hashOf(key)}); err != nil {
		return nil, err
	}
	rec, err := s.store.GatewayKey(ctx, key[:keyIDDigits])
	if err != nil {
		return nil, err
	}
	return &agboxv1.CreateGatewayKeyResponse{Record: keyRecord(key[:keyIDDigits], rec), Key: key}, nil
}

// ListGatewayKeys implements agbox.v1.GatewayService.
func (s *gateways) ListGatewayKeys(ctx context.Context, _ *agboxv1.ListGatewayKeysRequest) (*agboxv1.ListGatewayKeysResponse, error) {
	all, err := s.store.GatewayKeys(ctx)
	if err != nil {
		return nil, err
	}
	resp := &agboxv1.ListGatewayKeysResponse{}
	for _, id := range slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[a].GetCreatedAt(), all[b].GetCreatedAt()), strings.Compare(a, b))
	}) {
		resp.Keys = append(resp.Keys, keyRecord(id, all[id]))
	}
	return resp, nil
}

// RevokeGatewayKey implements agbox.v1.GatewayService.
func (s *gateways) RevokeGatewayKey(ctx context.Context, req *agboxv1.RevokeGatewayKeyRequest) (*agboxv1.RevokeGatewayKeyResponse, error) {
	if err := required("key_id", req.GetKeyId()); err != nil {
		return nil, err
	}
	return &agboxv1.RevokeGatewayKeyResponse{}, s.store.RevokeGatewayKey(ctx, req.GetKeyId())
}

// GetGatewayKey implements agbox.v1.GatewayService. The error has no part of the key but its ID.
func (s *gateways) GetGatewayKey(ctx context.Context, req *agboxv1.GetGatewayKeyRequest) (*agboxv1.GetGatewayKeyResponse, error) {
	key := req.GetKey()
	if len(key) != keyDigits {
		return nil, unknownKey()
	}
	id := key[:keyIDDigits]
	rec, err := s.store.GatewayKey(ctx, id)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare(rec.GetHash(), hashOf(key)) != 1 {
		return nil, unknownKey()
	}
	return &agboxv1.GetGatewayKeyResponse{Record: keyRecord(id, rec)}, nil
}

// GetGatewaySecret implements agbox.v1.GatewayService.
func (s *gateways) GetGatewaySecret(ctx context.Context, _ *agboxv1.GetGatewaySecretRequest) (*agboxv1.GetGatewaySecretResponse, error) {
	secret, err := s.store.GatewaySecret(ctx)
	return &agboxv1.GetGatewaySecretResponse{Secret: secret}, err
}

func unknownKey() error {
	return &store.Refusal{Reason: "GATEWAY_KEY_NOT_FOUND", Message: "the gateway key is not valid", Class: errdefs.ErrNotFound}
}

func hashOf(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

func keyRecord(id string, rec *storev1.GatewayKey) *agboxv1.GatewayKey {
	return &agboxv1.GatewayKey{KeyId: id, Owner: rec.GetOwner(), CreatedAt: nanoseconds(rec.GetCreatedAt())}
}

// gatewayPart returns the part of a spec that gateways need for lists.
func gatewayPart(spec *agboxv1.CreateSpec) *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{
		Image: spec.GetImage(), CpuLimit: spec.GetCpuLimit(), MemoryLimit: spec.GetMemoryLimit(), DiskLimit: spec.GetDiskLimit(),
		Timeout: spec.GetTimeout(), OnTimeout: spec.GetOnTimeout(), AutoResume: spec.GetAutoResume(), Gateway: spec.GetGateway(),
	}
}
