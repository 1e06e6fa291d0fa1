package naming

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var (
	// dockerName is what the engine accepts as the name of a container.
	dockerName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`)
	// From a small alphabet, so that collisions are likely.
	sandboxIDs = rapid.StringMatching(`[a-c0-1][a-c0-1_-]{2,10}[a-c0-1]`)
	services   = rapid.StringMatching(`[a-c0-1]([a-c0-1-]{0,6}[a-c0-1])?`)
)

// owner is the object that a name belongs to.
type owner struct{ kind, id, service string }

// No two objects share a name, for any IDs and services, and even if they are of different kinds.
func TestNoTwoObjectsShareAName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		owners := map[string]owner{}
		add := func(name string, of owner) {
			if !dockerName.MatchString(name) {
				t.Fatalf("the engine would refuse %q of %v", name, of)
			}
			if other, taken := owners[name]; taken && other != of {
				t.Fatalf("%s is the name of both %v and %v", name, of, other)
			}
			owners[name] = of
		}
		for _, id := range variants(rapid.SliceOfN(sandboxIDs, 2, 6).Draw(t, "ids")) {
			add(Network(id), owner{"network", id, ""})
			add(Primary(id), owner{"primary", id, ""})
			for _, service := range variants(rapid.SliceOfN(services, 1, 4).Draw(t, "services of "+id)) {
				add(Service(id, service), owner{"service", id, service})
			}
		}
	})
}

// variants adds similar texts that a careless scheme would map to one name, and texts cut at their hyphens, so that
// the end of an ID can be the start of a service.
func variants(texts []string) []string {
	all := texts
	for _, s := range texts {
		all = append(all, strings.ReplaceAll(s, "-", "_"), strings.ReplaceAll(s, "_", "-"))
		for i := range s {
			if s[i] == '-' && i+1 < len(s) && s[i+1] != '-' && s[i-1] != '-' {
				all = append(all, s[:i], s[i+1:])
			}
		}
	}
	return all
}

// Names never change: an older daemon's objects are found by them.
func TestNamesAreStable(t *testing.T) {
	for got, want := range map[string]string{
		Network("my_box"):            "agbox-net-my-box_d94ceeab2e00",
		Primary("my_box"):            "agbox-primary-my-box_d94ceeab2e00",
		Service("my_box", "db"):      "agbox-svc-my-box-db_dfe8dcd53b85",
		Service("my-box", "db-main"): "agbox-svc-my-box-db-main_d2b45cfedf69",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Docker has no limit for names; a container with a name of 287 bytes was created and started.
func TestLongestNames(t *testing.T) {
	id, service := "a_"+strings.Repeat("b", 198), strings.Repeat("c", 31)+"-"+strings.Repeat("d", 31)
	for _, name := range []string{Network(id), Primary(id), Service(id, service)} {
		if !dockerName.MatchString(name) {
			t.Errorf("the engine would refuse %s", name)
		}
	}
	if n := len(Service(id, service)); n != 10+200+1+63+13 {
		t.Errorf("the longest name has %d bytes", n)
	}
}
