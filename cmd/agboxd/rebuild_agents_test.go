package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// TestAgentsComeBackThroughAnyNumberOfLosses, beside a file that is none, and after a rebuild that died when it had some of them.
func TestAgentsComeBackThroughAnyNumberOfLosses(t *testing.T) {
	s := newSite(t)
	records := s.open()
	_, err := records.CreateSandbox(t.Context(), "box1", "", &agboxv1.CreateSpec{Image: "x"}, nil)
	s.must(err)
	before := map[string]store.Agent{}
	for i := range 40 {
		id := fmt.Sprint("agent-", i)
		_, err := records.CreateAgent(t.Context(), id, "name-"+id, &agboxv1.AgentSpec{SandboxId: "box1", Command: []string{"x"}, InitialPrompt: "begin"})
		s.must(err)
		before[id], err = records.Agent(t.Context(), id)
		s.must(err)
	}
	s.die(records)
	s.must(os.WriteFile(filepath.Join(agentsRoot(s.paths), strings.Repeat("0", 32)), []byte("none"), 0o600))
	for _, some := range []bool{true, false, true} {
		s.must(os.Remove(s.paths.Database))
		records := s.open()
		r := s.rebuilder(records)
		if some {
			found := agentsRoot(s.paths)
			r.agentsRoot = memoryDir(t)
			names, err := os.ReadDir(found)
			s.must(err)
			for _, e := range names[:len(names)/2] {
				s.must(os.Link(filepath.Join(found, e.Name()), filepath.Join(r.agentsRoot, e.Name())))
			}
			s.must(r.agentsFromFiles(t.Context()))
			s.die(records)
			records = s.open()
			r = s.rebuilder(records)
		}
		s.must(r.fromFiles(t.Context()))
		if r.unread != 0 && r.unread != 1 {
			t.Errorf("%d could not be read", r.unread)
		}
		for id, was := range before {
			is, err := records.Agent(t.Context(), id)
			if err != nil || !proto.Equal(is.Status, was.Status) || !proto.Equal(is.Desired, was.Desired) || is.Name != was.Name || is.Queued != 1 {
				t.Errorf("%s is %+v, and was %+v; %v", id, is, was, err)
			}
		}
		if n := len(records.AgentsOf("box1")); n != 40 {
			t.Errorf("the sandbox has %d agents", n)
		}
		s.must(errors.Join(records.RebuildDone(t.Context())))
		s.die(records)
	}
}
