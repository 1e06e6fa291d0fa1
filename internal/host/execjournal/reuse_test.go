package execjournal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execphase"
)

// TestAJournalIsReadFromTheFileThatIsTheJournal: at the end of an exec, its supervisor exchanges the journal with the end's file, and overwrites
// the former journal at the end of its next exec. A reader may have opened that file before.
func TestAJournalIsReadFromTheFileThatIsTheJournal(t *testing.T) {
	d, paths := newDir(t)
	in := func(name string) string { return filepath.Join(paths.Logs, name) }
	const temp = ".next.tmp"
	write(t, paths.Logs, "e1.journal", journal("started", testNonce))
	done := make(chan error, 1)
	go func() {
		var err error
		for range 2000 {
			err = os.WriteFile(in(temp), []byte(journal("ended", testNonce)), 0o600)
			if err == nil {
				err = unix.Renameat2(unix.AT_FDCWD, in(temp), unix.AT_FDCWD, in("e1.journal"), unix.RENAME_EXCHANGE)
			}
			if err == nil { // another exec's end, longer than what is there
				err = os.WriteFile(in(temp), []byte(strings.Repeat("\x00", 4096)), 0o600)
			}
			if err == nil {
				err = os.Remove(in(temp)) // it is never the journal of the first exec again
			}
			if err == nil { // in place of a further exec
				err = os.WriteFile(in("again"), []byte(journal("started", testNonce)), 0o600)
			}
			if err == nil {
				err = os.Rename(in("again"), in("e1.journal"))
			}
			if err != nil {
				break
			}
		}
		done <- err
	}()
	for reads := 0; ; reads++ {
		select {
		case err := <-done:
			must(t, err)
			return
		default:
		}
		s, err := d.Status("box1", "e1", testNonce)
		if errdefs.IsUnavailable(err) {
			continue // a journal that is replaced as often as here leads to no verdict
		}
		if err != nil || s.Phase == execphase.Foreign {
			t.Fatalf("read %d: %v, %v", reads, s, err)
		}
	}
}
