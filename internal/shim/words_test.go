package shim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// outbox returns the non-empty lines that agboxd reads of r.
func (b *box) outbox(r execjournal.Request) (lines []string) {
	b.Helper()
	list, _, err := b.dir.ReadLines(sandbox, r.ExecID, execjournal.Outbox, 0, 1<<20, false)
	must(b, err)
	for _, l := range list {
		if len(l.Data) > 0 {
			lines = append(lines, string(l.Data))
		}
	}
	return lines
}

func TestWordsOfPrograms(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	b := newBox(t).boot()
	r := b.agent(strings.ReplaceAll(`SHIM status 'at <work> & more'
		printf 'two\nlines "quoted"' | SHIM checkpoint -
		SHIM done; SHIM done error
		printf torn >> $OUTBOX; SHIM status next
		SHIM checkpoint; echo $?
		SHIM status a b; echo $?
		head -c 65536 /dev/zero | tr '\0' x | SHIM checkpoint - && echo fits
		head -c 65537 /dev/zero | SHIM checkpoint -; echo $?
		AGBOX_EXEC_ID= SHIM done; echo $?
		AGBOX_EXEC_ID=../x SHIM done; echo $?
		AGBOX_EXEC_ID=other SHIM done; echo $?
		read prompt; echo "$prompt"`, "SHIM", self))
	r.Env["OUTBOX"] = filepath.Join(b.paths.Out, execjournal.AgentsDir, execjournal.OutboxName(r.ExecID))
	b.give(r, "untouched\n")
	b.ended(b.start(r))
	out, errOut := b.logs(r)
	if out != "2\n2\nfits\n1\n1\n1\n1\nuntouched\n" {
		t.Errorf("%s%s", out, errOut)
	}
	want := []string{
		`{"type":"status","text":"at <work> & more"}`, `{"type":"checkpoint","text":"two\nlines \"quoted\""}`,
		`{"type":"done"}`, `{"type":"done","outcome":"error"}`, `torn`, `{"type":"status","text":"next"}`,
		`{"type":"checkpoint","text":"` + strings.Repeat("x", 1<<16) + `"}`,
	}
	if got := b.outbox(r); !slices.Equal(got, want) {
		t.Errorf("%.300q", got)
	}
	if !strings.Contains(errOut, "usage:") || !strings.Contains(errOut, "this is no agent") {
		t.Errorf("%s", errOut)
	}
}

func TestWordsOfManyProgramsDoNotMix(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	b := newBox(t).boot()
	r := b.agent(`for i in 1 2 3 4 5 6 7 8; do (head -c 20000 /dev/zero | tr '\0' $i | ` + self + ` checkpoint -) & done; wait`)
	b.ended(b.start(r))
	got := b.outbox(r)
	slices.Sort(got)
	for i, line := range got {
		if want := `{"type":"checkpoint","text":"` + strings.Repeat(string(rune('1'+i)), 20000) + `"}`; line != want {
			t.Errorf("%d: %.60q", i, line)
		}
	}
	if len(got) != 8 {
		t.Errorf("%d lines", len(got))
	}
}

func TestOutboxReplacesWhateverHasItsName(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	dir := filepath.Join(b.paths.Out, execjournal.AgentsDir)
	must(t, os.Mkdir(dir, 0o755))
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("precious"), 0o644))
	b.boot()
	for _, put := range []func(path string) error{
		func(path string) error { return os.Symlink(victim, path) },
		func(path string) error { return syscall.Mkfifo(path, 0o666) },
		func(path string) error { return os.WriteFile(path, []byte("{}\n"), 0o644) },
	} {
		r := b.agent(`echo mine >> "$OUTBOX"`)
		path := filepath.Join(dir, execjournal.OutboxName(r.ExecID))
		r.Env["OUTBOX"] = path
		must(t, put(path))
		must(t, put(filepath.Join(dir, execjournal.WordsName(r.ExecID))))
		b.ended(b.start(r))
		if got := b.outbox(r); !slices.Equal(got, []string{"mine"}) {
			t.Errorf("%q", got)
		}
		b.until("the FIFO to go with its exec", func() bool {
			_, err := os.Lstat(path)
			return errors.Is(err, fs.ErrNotExist)
		})
	}
	if b.read(victim) != "precious" {
		t.Error("a file outside was written")
	}
	must(t, os.RemoveAll(dir))
	must(t, os.Symlink("/tmp", dir))
	r := b.agent("true")
	if j := b.ended(b.start(r)); j.ErrorCode != execjournal.ErrorStartFailed {
		t.Errorf("a symlink as the directory: %+v", j)
	}
	if plain := b.ended(b.start(b.sh("true"))); plain.ExitCode != 0 {
		t.Errorf("a plain exec beside it: %+v", plain)
	}
}
