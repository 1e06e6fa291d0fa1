package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/testing/upgrade"
	"github.com/agbox/agbox/store"
)

// fixtures are sites of the last version that kept record files, and of a version that kept the log.
var fixtures = []string{"before-log", "first-log"}

// fixture is the site that an earlier version left, see testdata/upgrade/README.md, with the answers of that version's API.
func fixture(t testing.TB, name string) (*site, upgrade.Answers) {
	t.Helper()
	s := newSite(t)
	from := filepath.Join("testdata", "upgrade", name)
	s.Must(os.Remove(s.DataDir))
	s.Must(upgrade.Unpack(from+".tar.gz", s.DataDir))
	text, err := os.ReadFile(from + ".json")
	s.Must(err)
	var was upgrade.Answers
	s.Must(json.Unmarshal(text, &was))
	return s, was
}

// answers returns the answers of this version's API on the site, once its log is complete. No loop runs, because this host has none of the
// fixture's containers.
func (s *site) answers() upgrade.Answers {
	s.Helper()
	d, conn := s.assembled()
	d.removeRecordFiles(s.Context())
	served := make(chan error, 1)
	go func() { served <- d.api.Serve(d.socket) }()
	is, err := upgrade.Ask(s.Context(), conn, s.DataDir)
	s.Must(errors.Join(err, conn.Close()))
	d.shutdownAPI()
	s.Must(errors.Join(<-served, d.store.Close(), d.engine.Close()))
	return is
}

// files lists the data directory with modes, except the log's segments, which are new after each start.
func (s *site) files() (list []string) {
	s.Helper()
	s.Must(filepath.WalkDir(s.DataDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(path, store.LogDir(s.Database)+"/") {
			return err
		}
		info, err := e.Info()
		list = append(list, info.Mode().String()+" "+strings.TrimPrefix(path, s.DataDir))
		return err
	}))
	return list
}

// needEngine lists the answers that depend on the engine. It is unavailable in these tests, and was available when the fixtures were made.
// The fields channel and network_mode are newer than the fixtures.
var needEngine = []string{
	"agent helper/agent/unverified", "agents/agents/0/unverified", "sandbox site/sandbox/ports", "sandboxes/sandboxes/*/ports",
	"sandbox */sandbox/channel", "sandboxes/sandboxes/*/channel", "sandbox */sandbox/network_mode",
}

// wantSame compares this version's answers with those of the earlier version.
func (s *site) wantSame(when string, was upgrade.Answers) {
	s.Helper()
	for _, difference := range upgrade.Differences(was, s.answers(), needEngine...) {
		s.Errorf("%s: %s", when, difference)
	}
}

// TestAnUpgradeKeepsAllAnswers: after any number of starts, and after the database is lost.
func TestAnUpgradeKeepsAllAnswers(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			s, was := fixture(t, name)
			s.wantSame("at the first start", was)
			for _, path := range s.recordFiles() {
				t.Errorf("%s is left", path)
			}
			files := s.files()
			s.wantSame("at the second start", was)
			if again := s.files(); !slices.Equal(again, files) {
				t.Errorf("the second start has changed the files\n%s\nto\n%s", strings.Join(files, "\n"), strings.Join(again, "\n"))
			}
			s.Must(os.Remove(s.Database))
			s.wantSame("without the database", was)
			s.Must(os.Truncate(s.Database, 5000))
			s.wantSame("with a damaged database", was)
		})
	}
}

// recordFiles returns the record files that the version before the log left beside the database.
func (s *site) recordFiles() []string {
	s.Helper()
	paths, err := s.RecordFiles()
	s.Must(err)
	return paths
}

// TestALostDatabaseThatOnlyAnEarlierVersionCanRebuildIsLeftToIt: its record files are the newest copy, and the only one with its agents.
func TestALostDatabaseThatOnlyAnEarlierVersionCanRebuildIsLeftToIt(t *testing.T) {
	losses := map[string]func(s *site){
		"missing": func(s *site) { s.Must(os.Remove(s.Database)) },
		"empty":   func(s *site) { s.Must(os.Truncate(s.Database, 0)) },
		"damaged": func(s *site) { s.Must(os.Truncate(s.Database, 5000)) },
		"missing, and a kill stopped the first snapshot": func(s *site) {
			dir := store.LogDir(s.Database)
			s.Must(os.Mkdir(dir, 0o700))
			s.Must(os.WriteFile(filepath.Join(dir, "segment-00000001"), nil, 0o600))
			s.Must(os.WriteFile(filepath.Join(dir, "snapshot-00000001.tmp"), []byte("half"), 0o600))
			s.Must(os.Remove(s.Database))
		},
		"missing, with a log from before a downgrade": func(s *site) {
			records := s.Start()
			s.Must(errors.Join(records.Close(), s.RemoveRecordFiles()))
			again, _ := fixture(s, "before-log") // its record files appear newer than the log
			s.Must(os.Mkdir(filepath.Join(s.DataDir, "agents"), 0o700))
			for _, path := range again.recordFiles() {
				if name := strings.TrimPrefix(path, again.DataDir); name != "/agents" {
					s.Must(os.Rename(path, filepath.Join(s.DataDir, name)))
				}
			}
			s.Must(os.Remove(s.Database))
		},
	}
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			s, _ := fixture(t, "before-log")
			lose(s)
			files := s.files()
			_, err := s.Records()
			if err == nil || !strings.Contains(err.Error(), "start that version") || !strings.Contains(err.Error(), s.DataDir) {
				t.Fatalf("the start says %v", err)
			}
			if again := s.files(); !slices.Equal(again, files) {
				t.Errorf("the refused start has changed the files\n%s\nto\n%s", strings.Join(files, "\n"), strings.Join(again, "\n"))
			}
		})
	}
}

// TestRecordFilesOlderThanTheLogRefuseNoStart: a kill has left them, and the log rebuilds the database.
func TestRecordFilesOlderThanTheLogRefuseNoStart(t *testing.T) {
	s, was := fixture(t, "before-log")
	records := s.Start() // has written the log but not removed the files yet
	s.Die(records)
	s.Must(os.Remove(s.Database))
	s.wantSame("without the database", was)
	if left := s.recordFiles(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// TestACutLogOfAnEarlierVersionRestoresItsAgents: for live sandboxes the engine must be asked.
func TestACutLogOfAnEarlierVersionRestoresItsAgents(t *testing.T) {
	s, was := fixture(t, "first-log")
	s.CutLog() // needed if the host has not rebooted since the fixture was made
	s.Must(os.Remove(s.Database))
	d, conn := s.assembled()
	hidden, err := d.store.Unproven(t.Context())
	s.Must(err)
	var ids []string
	for _, u := range hidden {
		ids = append(ids, u.Record.GetSandboxId())
	}
	slices.Sort(ids)
	if got := strings.Join(ids, " "); got != "broken frozen halted home site" || !d.store.RebuildPending() {
		t.Errorf("hidden are %q; a rebuild is pending: %t", got, d.store.RebuildPending())
	}
	served := make(chan error, 1)
	go func() { served <- d.api.Serve(d.socket) }()
	said, err := agboxv1.NewAgentServiceClient(conn).GetAgentConversation(t.Context(), &agboxv1.GetAgentConversationRequest{AgentId: "helper"})
	s.Must(err)
	if turns := was["conversation of helper"].(map[string]any)["turns"].([]any); len(said.GetTurns()) != len(turns) {
		t.Errorf("the conversation has %d turns, and had %d", len(said.GetTurns()), len(turns))
	}
	s.Must(conn.Close())
	d.shutdownAPI()
	s.Must(errors.Join(<-served, d.store.Close(), d.engine.Close()))
}
