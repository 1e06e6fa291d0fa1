//go:build docker

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestExamples runs the commands in the first comment of each example, with an empty home.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../config/examples/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
			home := filepath.Join(d.home, "home")
			must(0, os.Mkdir(home, 0o700))(t)
			d.env = []string{"HOME=" + home, "SSH_AUTH_SOCK="}
			d.start()
			for _, line := range append(commandsIn(t, file), "agbox delete -f "+strings.TrimPrefix(file, "../../../")+" --volumes --wait") {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				cmd := exec.CommandContext(ctx, "sh", "-euc", line)
				cmd.Dir = "../../.."
				cmd.Env = append(os.Environ(), "PATH="+binaries+":"+os.Getenv("PATH"), "HOME="+home, "XDG_RUNTIME_DIR="+d.home+"/run")
				out, err := cmd.CombinedOutput()
				cancel()
				if err != nil {
					t.Fatalf("%s: %v\n%s", line, err, out)
				}
			}
		})
	}
}

// commandsIn returns the indented lines of the comment at the start of a file.
func commandsIn(t *testing.T, file string) (lines []string) {
	text := string(must(os.ReadFile(file))(t))
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		if command, ok := strings.CutPrefix(comment, "   "); ok {
			lines = append(lines, strings.TrimSpace(command))
		}
	}
	if !strings.Contains(strings.Join(lines, "\n"), "agbox apply -f config/examples/"+filepath.Base(file)+" --wait") {
		t.Fatalf("%s: the comment at its start does not say how to apply it: %v", file, lines)
	}
	return lines
}
