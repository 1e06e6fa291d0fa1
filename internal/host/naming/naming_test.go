package naming

import (
	"strings"
	"testing"
)

func TestPlainIDsKeepTheirNames(t *testing.T) {
	for got, want := range map[string]string{
		Network("abc-1"):        "agbox-net-abc-1",
		Primary("ABC-1"):        "agbox-primary-ABC-1",
		Service("abc-1", "db"):  "agbox-svc-abc-1-db",
		Service("abc-1", "D.b"): "agbox-svc-abc-1-D.b",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestNamesNeverCollide(t *testing.T) {
	names := map[string]string{}
	add := func(name, of string) {
		if other, taken := names[name]; taken {
			t.Errorf("%s is the name of both %s and %s", name, of, other)
		}
		names[name] = of
	}
	for _, id := range []string{"a-b", "a_b", "a-b-c", "a_b-c", "a-b_c", "a_b_c"} {
		add(Network(id), "network "+id)
		add(Primary(id), "primary "+id)
		for _, svc := range []string{"c", "b-c", "b_c", "b.c", "B", "d", "c-d", "c_d"} {
			add(Service(id, svc), "service "+id+" "+svc)
		}
	}
}

func TestUnderscoreNamesCarryADigest(t *testing.T) {
	name := Primary("a_b")
	if !strings.HasPrefix(name, "agbox-primary-a-b_") || len(name) != len("agbox-primary-a-b_")+12 {
		t.Errorf("unexpected name %s", name)
	}
}

func TestVolumeNamesAreReadBack(t *testing.T) {
	const instance = "316dba9d-eab6-486a-b5da-e1cda67d00c5"
	for _, want := range [][2]string{{"web", "data"}, {"a-b", "c"}, {"a", "b-c"}, {"a", "b.c"}} {
		name := VolumeOf(instance, want[0], want[1])
		if sandbox, volume, ok := ParseVolume(name); !ok || sandbox != want[0] || volume != want[1] {
			t.Errorf("%s is read as %q, %q, %t", name, sandbox, volume, ok)
		}
	}
	for _, name := range []string{"", "agbox-vol-", "agbox-vol-" + instance, "agbox-vol-" + instance + "-web", "agbox-vol-" + instance + "-.x", "agbox-vol-" + instance + "-web.", MarkerVolume(instance)} {
		if sandbox, volume, ok := ParseVolume(name); ok {
			t.Errorf("%s is read as %q, %q", name, sandbox, volume)
		}
	}
}

// Users choose the IDs of snapshots, so two daemons of one engine may have the same: an image keeps its name, and is a snapshot by no other.
func TestSnapshotsOfTwoDaemonsHaveTwoNames(t *testing.T) {
	labels := map[string]string{SnapshotInstance: "one", SnapshotID: "snap"}
	mine, theirs, former := SnapshotRef("one", "snap"), SnapshotRef("two", "snap"), SnapshotRef("", "snap")
	if mine == theirs || mine == former {
		t.Fatal(mine, theirs, former)
	}
	for want, refs := range map[string][]string{mine: {"x:y", mine, theirs}, former: {former, theirs}, "": {theirs, "x:y"}} {
		if got := FindSnapshotRef(labels, refs); got != want {
			t.Errorf("of %v: %q, want %q", refs, got, want)
		}
	}
	if got := FindSnapshotRef(map[string]string{SnapshotInstance: "one"}, []string{SnapshotRef("one", "")}); got != "" {
		t.Errorf("an image without an ID is %s", got)
	}
}

// A registry may have the name of our repositories and a port: what is reached there is the client's choice.
func TestARegistryWithOurNameIsTheClients(t *testing.T) {
	labels := map[string]string{BuildID: "b", BuildOwner: "alice"}
	for ref, want := range map[string]bool{
		BuildRef("b"): false, SnapshotRef("one", "snap"): false, "sha256:abc": false,
		"registry.example/x:1": true, "agbox-template:5000/x:1": true, "agbox-snapshot:5000/x": true,
	} {
		if got := IsOthers("bob", ref, labels, []string{BuildRef("b")}); got != want {
			t.Errorf("%s: %v", ref, got)
		}
	}
}
