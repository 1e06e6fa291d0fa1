package store

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agbox/agbox/internal/audit"
)

// emptyEngine answers every list with no objects.
var emptyEngine = sync.OnceValue(func() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[]")) }))
})

// ofRecords are the invariants that the auditor, which shares no code with this package, checks in the database alone.
var ofRecords = []string{"I1", "I2", "I3", "I4", "I5", "I6", "I20", "I21", "I22"}

// audited returns the violations that the auditor finds in the records of a closed database.
func audited(t testing.TB, path string) []string {
	t.Helper()
	empty := filepath.Join(t.TempDir(), "none")
	site := audit.Site{RunRoot: empty, LogRoot: empty, TxLog: empty, Engine: "tcp://" + strings.TrimPrefix(emptyEngine().URL, "http://"), ScratchDir: filepath.Dir(path)}
	r, err := audit.Run(ctx, site, audit.FromFile(path), audit.Options{})
	must(t, err)
	var all []string
	for _, f := range r.Violations {
		if slices.Contains(ofRecords, f.Invariant) {
			all = append(all, f.String())
		}
	}
	return all
}
