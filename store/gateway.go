package store

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// maxGatewayKeys bounds the keys of gateways.
const maxGatewayKeys = 1000

var keyNotFound = refusal("key_id", "GATEWAY_KEY_NOT_FOUND", errdefs.ErrNotFound, "gateway key %s was not found")

// CreateGatewayKey records a key of a gateway, with its time. Errors: Refusal GATEWAY_KEYS_FULL; ErrInvalidArgument; ErrAlreadyExists;
// ErrUnavailable.
func (s *Store) CreateGatewayKey(ctx context.Context, id string, key *storev1.GatewayKey) error {
	if err := checkID("gateway key ID", id); err != nil {
		return err
	}
	key = proto.CloneOf(key)
	return s.update(ctx, func(t *txn) error {
		n := 0
		for range records(t.tx, bucketGatewayKeys, nil) {
			n++
		}
		if n >= maxGatewayKeys {
			return refuse("key_id", id, "GATEWAY_KEYS_FULL", errdefs.ErrResourceExhausted, "there are %d gateway keys; revoke one first", n)
		}
		if get(t.tx, bucketGatewayKeys, []byte(id)) != nil {
			return fmt.Errorf("gateway key %s: %w", id, errdefs.ErrAlreadyExists)
		}
		key.CreatedAt = t.now.UnixNano()
		t.put(bucketGatewayKeys, id, key)
		return nil
	})
}

// RevokeGatewayKey removes a key. Errors: Refusal GATEWAY_KEY_NOT_FOUND; ErrUnavailable.
func (s *Store) RevokeGatewayKey(ctx context.Context, id string) error {
	return s.update(ctx, func(t *txn) error {
		if id == "" || get(t.tx, bucketGatewayKeys, []byte(id)) == nil {
			return keyNotFound(id)
		}
		t.delete(bucketGatewayKeys, id)
		return nil
	})
}

// GatewayKey returns the record of a key. Errors: Refusal GATEWAY_KEY_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) GatewayKey(ctx context.Context, id string) (*storev1.GatewayKey, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (*storev1.GatewayKey, error) {
		key, err := read[*storev1.GatewayKey](tx, bucketGatewayKeys, id)
		if errdefs.IsNotFound(err) {
			return nil, keyNotFound(id)
		}
		return key, err
	})
}

// GatewayKeys returns the records of all keys by ID. Those that do not decode are left out: they admit no client. Errors: ErrUnavailable.
func (s *Store) GatewayKeys(ctx context.Context) (map[string]*storev1.GatewayKey, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (map[string]*storev1.GatewayKey, error) {
		found := map[string]*storev1.GatewayKey{}
		for k, v := range records(tx, bucketGatewayKeys, nil) {
			if key := (&storev1.GatewayKey{}); decode(v, key) == nil {
				found[string(k)] = key
			}
		}
		return found, nil
	})
}

// GatewaySecret returns the secret from which gateways derive tokens: 32 random bytes, made by the first call. Errors: ErrDataLoss;
// ErrUnavailable.
func (s *Store) GatewaySecret(ctx context.Context) ([]byte, error) {
	secret, err := viewed(ctx, s, gatewaySecret)
	if !errdefs.IsNotFound(err) {
		return secret, err
	}
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // it never returns an error
	return updated(ctx, s, func(t *txn) ([]byte, error) {
		secret, err := gatewaySecret(t.tx) // another call may have made it
		if errdefs.IsNotFound(err) {
			t.put(bucketMeta, keyGatewaySecret, &storev1.GatewaySecret{Secret: fresh})
			return fresh, nil
		}
		return secret, err
	})
}

func gatewaySecret(tx *bolt.Tx) ([]byte, error) {
	rec, err := read[*storev1.GatewaySecret](tx, bucketMeta, keyGatewaySecret)
	return rec.GetSecret(), err
}
