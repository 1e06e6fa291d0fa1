package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// maxSpecLabel is in bytes: each list of the engine's containers repeats the label.
const maxSpecLabel = 48 << 10

// specLabelVersion is what is written. A reader that meets another one leaves the label alone.
const specLabelVersion = 1

// specLabel is the JSON of the label.
type specLabel struct {
	Version int             `json:"version"`
	Spec    json.RawMessage `json:"spec"`
	// EnvKeys are sorted.
	EnvKeys []string `json:"env_keys,omitempty"`
}

// SpecLabel is the value of the spec label: the spec as JSON with the keys of all envs but not their values, which the
// containers' own environments hold. It is what a record is rebuilt from when the database and its log are lost. A
// spec that needs more than 48 KiB has none (empty).
func SpecLabel(spec *agboxv1.CreateSpec) (string, error) {
	s := proto.CloneOf(spec)
	keys := slices.Sorted(maps.Keys(s.GetEnvs()))
	s.Envs = nil
	for _, svc := range slices.Concat(s.GetRequiredServices(), s.GetOptionalServices()) {
		for k := range svc.GetEnvs() {
			svc.Envs[k] = ""
		}
	}
	body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode spec label: %w", err)
	}
	label, err := json.Marshal(specLabel{specLabelVersion, body, keys})
	if err != nil {
		return "", fmt.Errorf("encode spec label: %w", err)
	}
	if len(label) > maxSpecLabel {
		return "", nil
	}
	return string(label), nil
}

// maxLabelRead bounds what is read of a label that older releases, with a larger bound, or others wrote.
const maxLabelRead = 1 << 20

// ParseSpecLabel reads a spec label: the spec as it was at creation, in which all envs have their keys and empty values.
// Fields that this release does not know are left out. Errors: ErrInvalidArgument for what is no such label;
// ErrNotImplemented for another version.
func ParseSpecLabel(label string) (*agboxv1.CreateSpec, error) {
	var l specLabel
	switch {
	case len(label) > maxLabelRead || !utf8.ValidString(label):
		return nil, fmt.Errorf("the spec label is too large or no text: %w", errdefs.ErrInvalidArgument)
	case json.Unmarshal([]byte(label), &l) != nil:
		return nil, fmt.Errorf("the spec label is not JSON of the right types: %w", errdefs.ErrInvalidArgument)
	case l.Version != specLabelVersion:
		return nil, fmt.Errorf("the spec label has version %d: %w", l.Version, errdefs.ErrNotImplemented)
	}
	spec := &agboxv1.CreateSpec{}
	// The decoder's own text quotes the label, in which no secret should be, but a broken one may hold anything.
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(l.Spec, spec) != nil {
		return nil, fmt.Errorf("the spec in the label does not decode: %w", errdefs.ErrInvalidArgument)
	}
	spec.Envs = nil
	for _, k := range l.EnvKeys {
		if spec.Envs == nil {
			spec.Envs = map[string]string{}
		}
		spec.Envs[k] = ""
	}
	return spec, nil
}
