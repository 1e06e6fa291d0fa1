package faultlist_test

import (
	"slices"
	"testing"

	"github.com/agbox/agbox/internal/fault/faultlist"
)

func TestTheListHoldsWhatWritesAndNothingElse(t *testing.T) {
	list, err := faultlist.Commits("../../../store")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(len(list), list)
	for _, writes := range []string{"Report", "CreateSandbox", "RequestStop", "RequestInterrupt", "EndExec", "Adopt", "RebuildAgent", "PurgeSandbox", "MirrorAll"} {
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
