package controller_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// TestTheReasonOfAnEndQuotesTheLastOutput: the last stderr line of a process that ended on its own is in the reason, and anything that a
// container puts in place of the log does no harm.
func TestTheReasonOfAnEndQuotesTheLastOutput(t *testing.T) {
	words := func(text string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, row := range []struct {
		name, command string
		stderr        func(t *testing.T, path string)
		reason        string
	}{
		{"a crash", "agent boot=1000 die=3", words("loading\nError: no API key\n\n"), "its process ended with code 3 before it was ready: Error: no API key"},
		{"before it was ready", "agent boot=1000 die=0", words("nothing to do"), "its process ended with code 0 before it was ready: nothing to do"},
		{"an end as it should be", "agent boot=100 die=0 life=900", words("bye"), "its process ended with code 0"},
		{"secrets", "agent boot=1000 die=3", words("key hunter22 of house-secret is refused"), "its process ended with code 3 before it was ready: key [redacted] of [redacted] is refused"},
		{"it said nothing", "agent boot=1000 die=3", words(""), "its process ended with code 3 before it was ready"},
		{"no log", "agent boot=1000 die=3", func(*testing.T, string) {}, "its process ended with code 3 before it was ready"},
		{"a link", "agent boot=1000 die=3", func(t *testing.T, path string) {
			if err := os.Symlink("/etc/passwd", path); err != nil {
				t.Fatal(err)
			}
		}, "its process ended with code 3 before it was ready"},
	} {
		t.Run(row.name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				const box = "house"
				spec := &agboxv1.CreateSpec{Image: image, Envs: map[string]string{"HOUSE": "house-secret"}}
				if _, err := p.store.CreateSandbox(t.Context(), box, "", spec, nil); err != nil {
					t.Fatal(err)
				}
				p.boxes = append(p.boxes, box)
				pass(time.Second)
				p.newAgent(t, box, "ada", &agboxv1.AgentSpec{
					Command: strings.Fields(row.command), RestartPolicy: "never", Envs: map[string]string{"KEY": "hunter22"},
				})
				pass(500 * time.Millisecond)
				row.stderr(t, filepath.Join(p.dir, "logs", box, execjournal.StderrName("ada.1")))
				pass(2 * time.Second)
				if got := p.agent(t, "ada").Status.GetReason(); got != row.reason {
					t.Errorf("%q, want %q", got, row.reason)
				}
			})
		})
	}
}
