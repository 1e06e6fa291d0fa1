package store

import (
	"context"
	"strings"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// execPageBytes bounds the requests of one page, beyond its first exec.
const execPageBytes = 1 << 20

// ExecFilter selects execs for Execs.
type ExecFilter struct {
	// SandboxID is the sandbox of the execs; empty: any, also deleted ones.
	SandboxID string
	// Prefix is the start of the exec IDs; empty: any.
	Prefix string
	// After is the ExecPage.Next of the page before; empty: from the first.
	After string
}

// ExecPage is a part of the execs that a filter selects.
type ExecPage struct {
	Execs []Exec
	// Next is the ExecFilter.After of the next page; empty: there is none.
	Next string
}

// Execs returns execs, active and ended, sorted by exec ID: one page, which may be empty although there is a next one. It leaves out execs
// whose records do not decode. Errors: ErrUnavailable.
func (s *Store) Execs(ctx context.Context, f ExecFilter) (ExecPage, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (page ExecPage, err error) {
		bucket := bucketExecRefs
		if f.SandboxID != "" {
			if !hasRecord(tx, f.SandboxID) {
				return page, nil
			}
			bucket = prefixExecConfig + f.SandboxID
		}
		l := loader{tx, s.corrupt.add}
		seen, size, last := 0, 0, ""
		for k := range records(tx, bucket, []byte(max(f.Prefix, f.After))) {
			id := string(k)
			if !strings.HasPrefix(id, f.Prefix) {
				break
			}
			if id == f.After {
				continue
			}
			if seen == maxRead || size > execPageBytes {
				page.Next = last
				break
			}
			seen, last = seen+1, id
			if e, ok := l.listed(f.SandboxID, id); ok {
				page.Execs = append(page.Execs, e)
				size += proto.Size(e.Request)
			}
		}
		return page, nil
	})
}

// listed reads one exec; an empty sandboxID stands for the exec's own.
func (l loader) listed(sandboxID, execID string) (Exec, bool) {
	if sandboxID == "" {
		ref, err := read[*storev1.ExecRef](l.tx, bucketExecRefs, execID)
		if err != nil || !hasRecord(l.tx, ref.GetSandboxId()) {
			return Exec{}, false
		}
		sandboxID = ref.GetSandboxId()
	}
	e, err := l.exec(sandboxID, execID)
	return e, err == nil
}
