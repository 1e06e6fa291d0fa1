package store

import (
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

func TestANewerFileIsRefusedAndNotChanged(t *testing.T) {
	o := testOptions(t)
	must(t, open(t, o).Close())
	change(t, o.Path, bucketMeta, keySchema, encodeInt(7))
	before, err := os.ReadFile(o.Path)
	must(t, err)
	_, err = Open(ctx, o)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "version 7") ||
		!strings.Contains(err.Error(), "up to 1") || !strings.Contains(err.Error(), "written by a newer agboxd") {
		t.Fatal(err)
	}
	after, err := os.ReadFile(o.Path)
	if err != nil || string(before) != string(after) {
		t.Fatalf("the file was changed: %v", err)
	}
}

func TestAFileWithoutVersionIsNotOurs(t *testing.T) {
	o := testOptions(t)
	must(t, open(t, o).Close())
	db, err := bolt.Open(o.Path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(bucketMeta)) }))
	must(t, db.Close())
	if _, err := Open(ctx, o); !errdefs.IsDataLoss(err) {
		t.Fatal(err)
	}
}
