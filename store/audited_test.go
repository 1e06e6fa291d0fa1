package store

import (
	"testing"

	"github.com/agbox/agbox/internal/audit"
)

// audited returns the violations that the auditor, which shares no code with this package, finds in the records of a closed database.
func audited(t testing.TB, path string) (all []string) {
	t.Helper()
	found, err := audit.CheckRecords(path)
	must(t, err)
	for _, f := range found {
		all = append(all, f.String())
	}
	return all
}
