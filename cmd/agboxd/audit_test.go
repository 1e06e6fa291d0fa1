package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/audit"
	"github.com/agbox/agbox/store/storetest"
)

// emptyEngine has no containers, networks and volumes.
func emptyEngine(t *testing.T) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		empty := "[]"
		if r.URL.Path == "/volumes" {
			empty = `{"Volumes": null}`
		}
		_, _ = w.Write([]byte(empty))
	}))
	t.Cleanup(srv.Close)
	t.Setenv("DOCKER_HOST", strings.Replace(srv.URL, "http://", "tcp://", 1))
}

func TestAuditExitCodes(t *testing.T) {
	p := newPlace(t)
	emptyEngine(t)
	if code, _, errs := outcome("audit"); code != exitNoLook || !strings.Contains(errs, "no such file") {
		t.Errorf("no database: %d %q", code, errs)
	}
	p.add("one1")
	if code, out, errs := outcome("audit"); code != exitOK || errs != "" || !strings.Contains(out, "0 violations") {
		t.Errorf("a good one: %d %q %q", code, out, errs)
	}
	if code, _, errs := outcome("audit", "-o", "yaml"); code != exitUsage || !strings.Contains(errs, "--output") {
		t.Errorf("an unknown output: %d %q", code, errs)
	}
	s := p.open() // holds the file like a daemon, but serves no calls
	if code, _, errs := outcome("audit"); code != exitNoLook || errs == "" {
		t.Errorf("beside a daemon that does not answer: %d %q", code, errs)
	}
	p.must(s.Close())
	storetest.Put(t, p.paths.Database, "sandbox-names", "free", []byte{})
	code, out, errs := outcome("audit", "-o", "json")
	var r audit.Report
	p.must(json.Unmarshal([]byte(out), &r))
	if code != exitViolations || !strings.Contains(errs, "1 violations") || len(r.Violations) != 1 || r.Violations[0].Invariant != "I3" {
		t.Errorf("a violation: %d %+v %q", code, r, errs)
	}
	t.Setenv("DOCKER_HOST", "unix:///none/docker.sock")
	if code, _, errs := outcome("audit"); code != exitNoLook || !strings.Contains(errs, "engine") {
		t.Errorf("no engine: %d %q", code, errs)
	}
}
