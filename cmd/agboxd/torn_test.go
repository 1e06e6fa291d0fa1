package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/recordfile"
)

// write makes a record file by itself.
func (s *site) write(id, name string) {
	s.Helper()
	recordfile.New(runRoot(s.paths), s.log, func(err error) { s.Error(err) }).Sandbox(&storev1.SandboxRecord{
		Version: 1, SandboxId: id, CreatedAt: 1, Spec: &agboxv1.CreateSpec{Image: "x"}, LastSequence: 3,
		State:   int32(agboxv1.SandboxState_SANDBOX_STATE_READY),
		Desired: &storev1.Desired{RunState: storev1.RunState_RUN_STATE_RUN, Generation: 1, Name: name},
	})
}

func TestATornRecordIsToldOf(t *testing.T) {
	s := newSite(t)
	s.write("box-torn", "")
	s.write("box-whole", "")
	f, err := os.OpenFile(filepath.Join(runRoot(s.paths), execjournal.RunName("box-torn"), execjournal.RecordName), os.O_APPEND|os.O_WRONLY, 0)
	s.must(err)
	_, err = f.WriteString("AGBS\x00\x00")
	records := s.open()
	defer func() { s.must(records.Close()) }()
	r := s.rebuilder(records)
	s.must(errors.Join(err, f.Close(), r.fromFiles(s.Context())))
	if _, err := records.Sandbox(s.Context(), "box-torn"); !errdefs.IsNotFound(err) || r.sentence() == "" {
		t.Errorf("before the engine was asked: %v", err)
	}
	r.finish(s.Context())
	for id, torn := range map[string]bool{"box-torn": true, "box-whole": false} {
		sb, err := records.Sandbox(s.Context(), id)
		if got := sb.Desired.GetRehydrated().GetDefaulted(); err != nil || slices.Contains(got, "record") != torn {
			t.Errorf("%s: defaulted %v, %v", id, got, err)
		}
	}
}

func TestTheLogTellsOfANameThatAnotherHas(t *testing.T) {
	s := newSite(t)
	s.write("box-1", "web")
	s.write("box-2", "web")
	records := s.open()
	defer func() { s.must(records.Close()) }()
	s.must(s.rebuilder(records).fromFiles(s.Context()))
	if !strings.Contains(s.said.String(), "defaulted=[name]") {
		t.Errorf("in the log is no name:\n%s", s.said.String())
	}
}
