package faultlist_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/fault/faultlist"
)

func TestCommitsListsOnlyWritingMethods(t *testing.T) {
	list, err := faultlist.Commits("../../../store")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(len(list), list)
	for _, writes := range []string{"Report", "CreateSandbox", "RequestStop", "RequestInterrupt", "EndExec", "RecordRebuilt", "RebuildDone", "PurgeSandbox"} {
		if !slices.Contains(list, writes) {
			t.Errorf("%s writes and is not on the list", writes)
		}
	}
	for _, reads := range []string{"Sandbox", "Exec", "Events", "List", "LiveIDs", "Close", "OnCommit", "Watch"} {
		if slices.Contains(list, reads) {
			t.Errorf("%s does not write and is on the list", reads)
		}
	}
}

func TestADirectoryWithoutAPackageIsAnError(t *testing.T) {
	if list, err := faultlist.Commits(t.TempDir()); err == nil {
		t.Errorf("got %v", list)
	}
}

func TestEveryChangeOfTheBallastIsWithinAFailpoint(t *testing.T) {
	ops, uncovered, err := faultlist.Disk("../../host/diskspace", "Disk")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"fill_ballast", "make_ballast", "release_ballast"}; !slices.Equal(ops, want) {
		t.Errorf("operations %q, want %q", ops, want)
	}
	for _, u := range uncovered {
		t.Errorf("%s is in no failpoint: surround it with fault.Around(fault.Disk, ...)", u)
	}
}

func TestEveryChangeOfTheFilesOfBuildsIsWithinAFailpoint(t *testing.T) {
	ops, uncovered, err := faultlist.Disk("../../host/buildfiles", "Builds")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"append_log", "create_log", "drop_archive", "name_archive", "receive_archive", "remove_directory", "remove_file"}
	if !slices.Equal(ops, want) {
		t.Errorf("operations %q, want %q", ops, want)
	}
	for _, u := range uncovered {
		t.Errorf("%s is in no failpoint: surround it with fault.Around(fault.Builds, ...)", u)
	}
}

func TestTheLogHasItsFailpoints(t *testing.T) {
	ops, _, err := faultlist.Disk("../../../store/internal/txlog", "Log")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"append", "name_snapshot", "remove_older", "rotate", "sync", "write_snapshot"}; !slices.Equal(ops, want) {
		t.Errorf("operations %q, want %q", ops, want)
	}
}

func TestAChangeOutsideOfAFailpointIsFound(t *testing.T) {
	for name, row := range map[string]struct{ code, ops, uncovered string }{
		"around it":                   {`func a() { fault.Around(fault.Disk, "x", func() error { return os.Remove("f") }) }`, "x", ""},
		"around what calls it":        {`func a() { fault.Around(fault.Disk, "x", func() error { return b() }) }; func b() error { return os.Remove("f") }`, "x", ""},
		"in nothing":                  {`func a() { os.Remove("f") }`, "", "os.Remove"},
		"called from outside as well": {`func a() { fault.Around(fault.Disk, "x", b); c() }; func c() { b() }; func b() error { return os.Remove("f") }`, "x", "os.Remove"},
		"around it, of another kind":  {`func a() { fault.Around(fault.Store, "x", func() error { return os.Remove("f") }) }`, "", "os.Remove"},
		"a method that only its loop calls": {
			`type t struct{}; func (b *t) a() { fault.Around(fault.Disk, "x", func() error { return b.loop() }) }; func (b *t) loop() error { return b.part() }; ` +
				`func (b *t) part() error { _, err := b.f.WriteAt(nil, 0); return err }`, "x", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package a\n"+row.code+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			ops, uncovered, err := faultlist.Disk(dir, "Disk")
			if err != nil {
				t.Fatal(err)
			}
			found := strings.Join(uncovered, " ")
			if strings.Join(ops, " ") != row.ops || (found == "") != (row.uncovered == "") || !strings.HasSuffix(found, row.uncovered) {
				t.Errorf("operations %q, uncovered %q", ops, uncovered)
			}
		})
	}
}
