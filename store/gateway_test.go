package store

import (
	"bytes"
	"testing"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

func TestGatewayKeys(t *testing.T) {
	o := testOptions(t)
	s := open(t, o)
	secret, err := s.GatewaySecret(ctx)
	must(t, err)
	must(t, s.CreateGatewayKey(ctx, "a", &storev1.GatewayKey{Owner: "me", Hash: []byte("h")}))
	if err := s.CreateGatewayKey(ctx, "a", &storev1.GatewayKey{Owner: "you"}); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a second key of the ID: %v", err)
	}
	must(t, s.CreateGatewayKey(ctx, "b", &storev1.GatewayKey{Owner: "you"}))
	must(t, s.RevokeGatewayKey(ctx, "b"))
	must(t, s.Close())

	s = open(t, o)
	if again, err := s.GatewaySecret(ctx); err != nil || !bytes.Equal(again, secret) || len(secret) != 32 {
		t.Errorf("secret %x, then %x, %v", secret, again, err)
	}
	if key, err := s.GatewayKey(ctx, "a"); err != nil || key.GetOwner() != "me" || string(key.GetHash()) != "h" || key.GetCreatedAt() == 0 {
		t.Errorf("%v, %v", key, err)
	}
	if all, err := s.GatewayKeys(ctx); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	for _, id := range []string{"b", ""} {
		if _, err := s.GatewayKey(ctx, id); !errdefs.IsNotFound(err) {
			t.Errorf("key %q: %v", id, err)
		}
		if err := s.RevokeGatewayKey(ctx, id); !errdefs.IsNotFound(err) {
			t.Errorf("revoke %q: %v", id, err)
		}
	}
}

// TestOneGatewaySecret: concurrent first calls agree.
func TestOneGatewaySecret(t *testing.T) {
	s := open(t, testOptions(t))
	got := make(chan []byte)
	for range 8 {
		go func() {
			secret, _ := s.GatewaySecret(ctx)
			got <- secret
		}()
	}
	first := <-got
	for range 7 {
		if next := <-got; len(next) != 32 || !bytes.Equal(first, next) {
			t.Errorf("%x and %x", first, next)
		}
	}
}
