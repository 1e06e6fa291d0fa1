package plan

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

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

func TestASpecLabelGivesTheSpecBackWithoutEnvValues(t *testing.T) {
	s := spec()
	s.OptionalServices = []*agboxv1.ServiceSpec{{Name: "db", Image: "x", Envs: map[string]string{"PASSWORD": "hunter2"}}}
	label, err := SpecLabel(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseSpecLabel(label)
	if err != nil {
		t.Fatal(err)
	}
	for _, envs := range []map[string]string{s.Envs, s.OptionalServices[0].Envs} {
		for k := range envs {
			envs[k] = ""
		}
	}
	if !proto.Equal(got, s) {
		t.Errorf("got %v\nwant %v", got, s)
	}
}

func TestALabelThatCannotBeReadIsRefused(t *testing.T) {
	for label, is := range map[string]func(error) bool{
		"":                              errdefs.IsInvalidArgument,
		"{":                             errdefs.IsInvalidArgument,
		`{"version":1}`:                 errdefs.IsInvalidArgument,
		`{"version":1,"spec":[]}`:       errdefs.IsInvalidArgument,
		`{"version":2,"spec":{}}`:       errdefs.IsNotImplemented,
		`{"spec":{}}`:                   errdefs.IsNotImplemented,
		"{\"version\":1,\"spec\":\xff}": errdefs.IsInvalidArgument,
		strings.Repeat(" ", 2<<20):      errdefs.IsInvalidArgument,
	} {
		if _, err := ParseSpecLabel(label); !is(err) {
			t.Errorf("%.40q: %v", label, err)
		}
	}
	if s, err := ParseSpecLabel(`{"version":1,"spec":{"image":"a","of_a_later_release":1}}`); err != nil || s.GetImage() != "a" {
		t.Errorf("a field of a later release: %v, %v", s, err)
	}
}

// Any label is either refused or yields a spec that can be written and read again.
func FuzzParseSpecLabel(f *testing.F) {
	f.Add(`{"version":1,"spec":{"image":"a","labels":{"a":"b"}},"env_keys":["A"]}`)
	f.Add(`{"version":1,"spec":{"required_services":[{"name":"db","envs":{"A":""}}],"idle_ttl":"5s"}}`)
	f.Add(`{"version":1,"spec":{"cpu_limit":"NaN","timeout":"-1.5s"}}`)
	f.Add(`{"version":2}`)
	f.Add(`{"version":1,"spec":null,"env_keys":[""]}`)
	f.Fuzz(func(t *testing.T, label string) {
		s, err := ParseSpecLabel(label)
		if err != nil {
			if strings.Contains(err.Error(), "hunter2") || !errdefs.IsInvalidArgument(err) && !errdefs.IsNotImplemented(err) {
				t.Errorf("unclassified, or says too much: %v", err)
			}
			return
		}
		again, err := SpecLabel(s)
		if err != nil || again == "" {
			return // a duration out of range, or too large
		}
		if got, err := ParseSpecLabel(again); err != nil || SpecHash(got) != SpecHash(s) {
			t.Errorf("%q became %q, %v", label, again, err)
		}
	})
}
