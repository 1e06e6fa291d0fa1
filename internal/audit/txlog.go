package audit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// The log of the database, described in store/internal/txlog/doc.go.
const (
	frameHeader = 12
	maxFrame    = 256 << 20
	opPut       = 1
	opDelete    = 2
	opMake      = 3
	opDrop      = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// contents are hashes of values, by bucket and key.
type contents map[string]map[string]uint64

var seed = maphash.MakeSeed()

func (c contents) put(bucket string, k, v []byte) {
	if c[bucket] == nil {
		c[bucket] = map[string]uint64{}
	}
	if k != nil {
		c[bucket][string(k)] = maphash.Bytes(seed, v)
	}
}

func contentsOf(tx *bolt.Tx) (contents, error) {
	c := contents{}
	err := tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		c.put(string(name), nil, nil)
		return b.ForEach(func(k, v []byte) error {
			c.put(string(name), k, v)
			return nil
		})
	})
	return c, err
}

// differs describes the first difference; "" if there is none.
func (c contents) differs(want contents) string {
	for bucket, records := range want {
		for k, v := range records {
			if have, ok := c[bucket][k]; !ok || have != v {
				return fmt.Sprintf("record %q of bucket %s differs from the database (exists: %t)", k, bucket, ok)
			}
		}
	}
	for bucket, records := range c {
		for k := range records {
			if _, ok := want[bucket][k]; !ok {
				return fmt.Sprintf("record %q of bucket %s is not in the database", k, bucket)
			}
		}
	}
	return ""
}

// replayed is the result of replaying the log up to one transaction.
type replayed struct {
	contents contents
	txid     uint64
	problem  string // the reason why the log does not reach the transaction
}

// errBroken is the reason why a log cannot be read further.
type errBroken string

func (e errBroken) Error() string { return string(e) }

// replayLog replays the log up to transaction until. Errors: those of the files; a file removed meanwhile is a problem.
func replayLog(dir string, until uint64) (r replayed, err error) {
	r.contents = contents{}
	snapshots, err := filepath.Glob(filepath.Join(dir, "snapshot-????????"))
	if err != nil || len(snapshots) == 0 {
		r.problem = "there is no snapshot"
		return r, err
	}
	newest := slices.Max(snapshots)
	segments, err := filepath.Glob(filepath.Join(dir, "segment-????????"))
	if err != nil {
		return r, err
	}
	slices.Sort(segments)
	err = r.file(newest, until)
	for _, path := range segments {
		if err == nil && filepath.Base(path)[len("segment-"):] >= filepath.Base(newest)[len("snapshot-"):] {
			err = r.file(path, until)
		}
	}
	var broken errBroken
	switch {
	case errors.As(err, &broken), gone(err):
		r.problem, err = err.Error(), nil
	case err == nil && r.txid < until:
		r.problem = fmt.Sprintf("it ends with transaction %d", r.txid)
	}
	return r, err
}

func (r *replayed) file(path string, until uint64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	for at := 0; at < len(data); {
		rest := data[at:]
		n := 0
		if len(rest) >= frameHeader {
			n = int(binary.BigEndian.Uint32(rest[4:]))
		}
		if len(rest) < frameHeader || string(rest[:3]) != "AGL" || n > maxFrame || n > len(rest)-frameHeader {
			return errBroken(fmt.Sprintf("a frame of %s is torn at byte %d", filepath.Base(path), at))
		}
		payload := rest[frameHeader : frameHeader+n]
		if crc32.Update(crc32.Checksum(rest[:8], castagnoli), castagnoli, payload) != binary.BigEndian.Uint32(rest[8:]) {
			return errBroken(fmt.Sprintf("a frame of %s has a wrong checksum at byte %d", filepath.Base(path), at))
		}
		if err := r.frame(rest[3], payload, until); err != nil {
			return err
		}
		at += frameHeader + n
	}
	return nil
}

func (r *replayed) frame(kind byte, p []byte, until uint64) error {
	switch kind {
	case 'P': // version, lineage, transaction
		_, n := binary.Uvarint(p)
		r.txid, _ = binary.Uvarint(p[n+8:])
	case 'D':
		return r.apply(p)
	case 'T':
		before, n := binary.Uvarint(p)
		txid, m := binary.Uvarint(p[n:])
		switch {
		case txid <= r.txid, txid > until:
			return nil // in the snapshot, or newer than the copy of the database
		case before != r.txid:
			return errBroken(fmt.Sprintf("transaction %d is followed by %d, whose predecessor is %d", r.txid, txid, before))
		}
		r.txid = txid
		return r.apply(p[n+m:])
	}
	return nil
}

func (r *replayed) apply(p []byte) error {
	bytes := func() []byte {
		size, n := binary.Uvarint(p)
		if n <= 0 || size > uint64(len(p)-n) {
			p = nil
			return nil
		}
		v := p[n : n+int(size)]
		p = p[n+int(size):]
		return v
	}
	for len(p) > 0 {
		op := p[0]
		p = p[1:]
		bucket := string(bytes())
		switch op {
		case opPut:
			k := bytes()
			r.contents.put(bucket, k, bytes())
		case opDelete:
			delete(r.contents[bucket], string(bytes()))
		case opMake:
			r.contents.put(bucket, nil, nil)
		case opDrop:
			delete(r.contents, bucket)
		default:
			return errBroken(fmt.Sprintf("unknown operation %d", op))
		}
	}
	return nil
}

// log checks I13: the log gives the content of the database. A snapshot newer than the copy of the database proves nothing.
func (a *auditor) log() {
	say := a.about(flux, "I13", "log", fmt.Sprint(a.records.txid))
	r := a.files.log
	switch {
	case r.txid > a.records.txid:
	case r.problem != "":
		say("it can't be replayed to transaction %d of the database: %s", a.records.txid, r.problem)
	default:
		what := r.contents.differs(a.records.contents)
		say.when(what != "", "replayed to transaction %d, its %s", a.records.txid, what)
	}
}
