package execjournal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/testing/smalldisk"
)

// onAFullDisk returns a Dir on a small file system of its own, and a function that fills it.
func onAFullDisk(t *testing.T, before func(d *Dir)) (d *Dir, p Paths, filler string) {
	t.Helper()
	root := t.TempDir()
	smalldisk.Mount(t, root, "size=1m")
	d = New(filepath.Join(root, "logs"), filepath.Join(root, "s"))
	p, err := d.Prepare("box1")
	must(t, err)
	before(d)
	return d, p, smalldisk.Fill(t, root)
}

func fullRequest(inbox bool) Request {
	return Request{ExecID: "e1", Nonce: nonce1, Command: []string{"true"}, Inbox: inbox}
}

const nonce1 = "0123456789abcdef"

func TestCancelNeedsNoSpace(t *testing.T) {
	for _, inbox := range []bool{false, true} {
		d, p, filler := onAFullDisk(t, func(d *Dir) { must(t, d.Start("box1", fullRequest(inbox))) })
		exec := filepath.Join(p.Ctl, ExecDir)
		for range 2 {
			must(t, d.Cancel("box1", "e1", nonce1))
			data, err := os.ReadFile(filepath.Join(exec, CancelName("e1")))
			must(t, err)
			if c, err := DecodeCancel(data); err != nil || c.Nonce != nonce1 {
				t.Errorf("inbox %v: %v, %v", inbox, c, err)
			}
		}
		must(t, os.Remove(filler))
		must(t, d.Cancel("box1", "e1", nonce1))
		must(t, d.Forget("box1", "e1"))
		if left, err := os.ReadDir(exec); err != nil || len(left) > 0 {
			t.Errorf("left are %v (%v)", left, err)
		}
	}
}

func TestCancelWithoutARequestFailsOnAFullDisk(t *testing.T) {
	d, _, filler := onAFullDisk(t, func(*Dir) {})
	if err := d.Cancel("box1", "e1", nonce1); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	must(t, os.Remove(filler))
	must(t, d.Cancel("box1", "e1", nonce1))
}

func TestCloseNeedsNoSpace(t *testing.T) {
	d, p, filler := onAFullDisk(t, func(d *Dir) { must(t, d.Start("box1", fullRequest(false))) })
	for range 2 {
		s, err := d.Close("box1", "e1", nonce1, "not wanted any more")
		if err != nil || s.Phase != execphase.Closed {
			t.Fatalf("%v, %v", s, err)
		}
	}
	must(t, os.Remove(filler))
	s, err := d.Close("box1", "e1", nonce1, "not wanted any more")
	if err != nil || s.Phase != execphase.Closed {
		t.Fatalf("with space again: %v, %v", s, err)
	}
	fd, err := OpenDir(p.Logs)
	must(t, err)
	defer unix.Close(fd)
	started := journal(StateStarted, nonce1)
	if err := CreateExclusive(fd, TempName("e1", "journal"), JournalName("e1"), []byte(started), true); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the fence is open: %v", err)
	}
	if list, unread, err := d.Traces("box1"); err != nil || unread != 0 || len(list) != 1 || list[0].Request == nil || list[0].Journal != nil {
		t.Errorf("traces: %v, %d unread, %v", list, unread, err)
	}
}

func TestCloseOnAFullDiskKeepsAStartedJournal(t *testing.T) {
	d, _, _ := onAFullDisk(t, func(d *Dir) {
		write(t, d.Paths("box1").Logs, JournalName("e1"), `{"version":1,"exec_id":"e1","nonce":"`+nonce1+`","state":"ended","exit_code":3}`)
	})
	if s, err := d.Close("box1", "e1", nonce1, "not wanted any more"); err != nil || s.Phase != execphase.Ended || s.Journal.ExitCode != 3 {
		t.Errorf("%v, %v", s, err)
	}
}
