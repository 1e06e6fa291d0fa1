package execjournal

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestUsageCountsWhatTheSandboxCanWriteTo(t *testing.T) {
	d, p := newDir(t)
	if u, err := d.Usage("nobody"); err != nil || u.Bytes != 0 {
		t.Errorf("%+v, %v", u, err)
	}
	before, err := d.Usage("box1")
	must(t, err)
	big := make([]byte, 1<<20)
	must(t, os.WriteFile(filepath.Join(p.Logs, "e1.stdout.log"), big, 0o644))
	deep := filepath.Join(p.Out, "a", "b", "c")
	must(t, os.MkdirAll(deep, 0o755))
	must(t, os.WriteFile(filepath.Join(deep, "file"), big, 0o644))
	must(t, os.Symlink("/", filepath.Join(p.Out, "root")))
	must(t, os.WriteFile(filepath.Join(p.Logs, "sparse"), nil, 0o644))
	must(t, os.Truncate(filepath.Join(p.Logs, "sparse"), 1<<40))
	after, err := d.Usage("box1")
	must(t, err)
	if got := after.Bytes - before.Bytes; got < 2<<20 || got > 2<<20+256<<10 {
		t.Errorf("it grew by %d bytes", got)
	}
	if after.Disk < after.Bytes {
		t.Errorf("the disk has %d bytes", after.Disk)
	}
}

func TestUsageIsBounded(t *testing.T) {
	d, p := newDir(t)
	path := p.Out
	for i := range 3 * maxUsageDepth {
		path = filepath.Join(path, strconv.Itoa(i))
		must(t, os.Mkdir(path, 0o755))
	}
	if _, err := d.Usage("box1"); err != nil {
		t.Error(err)
	}
	fd, err := OpenDir(p.Out)
	must(t, err)
	left := 3
	if _, err := usage(fd, maxUsageDepth, &left); err != nil || left > 0 {
		t.Errorf("%d left, %v", left, err)
	}
}

func TestSetFullNeedsNoSpace(t *testing.T) {
	d, p, _ := onAFullDisk(t, func(*Dir) {})
	path := filepath.Join(p.Ctl, ExecDir, FullName)
	for range 2 {
		must(t, d.SetFull("box1", true))
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		must(t, d.SetFull("box1", false))
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it is still there")
	}
}
