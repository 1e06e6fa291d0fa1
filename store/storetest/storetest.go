// Package storetest makes and damages store files for the tests of other packages, which do not know their format.
package storetest

import (
	"errors"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Put overwrites one record of the file at path with bytes. No process may have the file open; the bucket must exist.
func Put(t testing.TB, path, bucket, key string, value []byte) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), value) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}
