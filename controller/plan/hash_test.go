package plan

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func spec() *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{
		Image:  "agbox-base:dev",
		Mounts: []*agboxv1.MountSpec{{Source: "/src", Target: "/dst", Writable: true}},
		Envs:   map[string]string{"A": "1", "TOKEN": "secret"},
		Labels: map[string]string{"team": "x"},
	}
}

// The value is pinned: a hash that changes with a release would make every container look drifted.
func TestSpecHashIsPinned(t *testing.T) {
	if got, want := SpecHash(spec()), "v1:b09276677c693a99fb3ce7ae904621e4"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSpecHashCoversWhatIsFixedInTheContainer(t *testing.T) {
	base := SpecHash(spec())
	for name, mutate := range map[string]func(*agboxv1.CreateSpec){
		"image": func(s *agboxv1.CreateSpec) { s.Image = "other" },
		"mount": func(s *agboxv1.CreateSpec) { s.Mounts[0].Writable = false },
		"env":   func(s *agboxv1.CreateSpec) { s.Envs["A"] = "2" },
	} {
		s := spec()
		mutate(s)
		if SpecHash(s) == base {
			t.Errorf("a change of %s keeps the hash", name)
		}
	}
	s := spec()
	s.Labels["team"] = "y"
	if SpecHash(s) != base {
		t.Error("labels can change in place and are not part of the hash")
	}
}

func TestSpecLabelHoldsNoEnvValues(t *testing.T) {
	s := spec()
	label, err := SpecLabel(s)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(label, "secret") || !strings.Contains(label, "TOKEN") {
		t.Errorf("unexpected label %s", label)
	}
	if !proto.Equal(s, spec()) {
		t.Error("the spec was changed")
	}
	s.RequiredServices = []*agboxv1.ServiceSpec{{Name: "db", Envs: map[string]string{"PASSWORD": "hunter2"}}}
	if label, err = SpecLabel(s); err != nil || strings.Contains(label, "hunter2") || !strings.Contains(label, "PASSWORD") {
		t.Errorf("unexpected label %s, %v", label, err)
	}
}

func TestASpecThatIsTooLargeForALabelHasNone(t *testing.T) {
	s := spec()
	s.Command = []string{"sh", "-c", strings.Repeat("x", maxSpecLabel)}
	if label, err := SpecLabel(s); err != nil || label != "" {
		t.Errorf("a label of %d bytes, %v", len(label), err)
	}
}
