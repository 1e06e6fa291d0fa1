package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// maxSpecLabel is in bytes: each list of the engine's containers repeats the label.
const maxSpecLabel = 48 << 10

// specLabelVersion is the version that is written. A reader ignores a label of another version.
const specLabelVersion = 1

// specLabel is the JSON of the label.
type specLabel struct {
	Version int             `json:"version"`
	Spec    json.RawMessage `json:"spec"`
	// EnvKeys are sorted.
	EnvKeys []string `json:"env_keys,omitempty"`
}

// SpecLabel returns the value of the spec label: the spec as JSON with the keys of all envs but not their values, which the containers' own
// environments hold. A record is rebuilt from it when the database and its log are lost. A spec that needs more than 48 KiB gets no label
// (empty).
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

// maxLabelRead bounds the bytes read of a label: older releases had a larger bound, and others may have written it.
const maxLabelRead = 1 << 20

// ParseSpecLabel decodes a spec label: the spec at creation, with the keys of all envs and empty values. It drops fields that this release
// does not know. Errors: ErrInvalidArgument if it is not a spec label; ErrNotImplemented for another version.
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
	// The decoder's error quotes the label, which should hold no secret, but a broken one may hold anything.
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

// ConfinementLabel returns the value of the confinement label, from which a record is rebuilt; empty for a sandbox without a confinement.
func ConfinementLabel(c *storev1.Confinement) (string, error) {
	if c == nil {
		return "", nil
	}
	body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode confinement label: %w", err)
	}
	return string(body), nil
}

// ParseConfinementLabel decodes a confinement label; an empty one is nil. It drops fields that this release does not know. Errors:
// ErrInvalidArgument.
func ParseConfinementLabel(label string) (*storev1.Confinement, error) {
	if label == "" {
		return nil, nil //nolint:nilnil // the sandbox has none
	}
	c := &storev1.Confinement{}
	if len(label) > maxLabelRead || (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(label), c) != nil {
		return nil, fmt.Errorf("the confinement label does not decode: %w", errdefs.ErrInvalidArgument)
	}
	return c, nil
}

// SpecHash identifies the part of a spec that its containers cannot change once they exist: version 2 covers every field except those that
// validate.InPlace names. Unset fields do not count, so a new field changes no hash of a spec without it. A hash of an unknown version says
// nothing about drift.
func SpecHash(spec *agboxv1.CreateSpec) string {
	var text strings.Builder
	hashMessage(&text, spec.ProtoReflect())
	sum := sha256.Sum256([]byte(text.String()))
	return "v2:" + hex.EncodeToString(sum[:])[:32]
}

// hashMessage writes the set fields in the order of their numbers, each with its name, and each value with its length.
func hashMessage(w *strings.Builder, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for _, n := range numbers(fields) {
		fd := fields.ByNumber(n)
		if !m.Has(fd) || validate.InPlace(fd) {
			continue
		}
		hashText(w, string(fd.Name()))
		hashField(w, fd, m.Get(fd))
	}
	hashText(w, "end")
}

func numbers(fields protoreflect.FieldDescriptors) []protoreflect.FieldNumber {
	list := make([]protoreflect.FieldNumber, fields.Len())
	for i := range list {
		list[i] = fields.Get(i).Number()
	}
	slices.Sort(list)
	return list
}

func hashField(w *strings.Builder, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case fd.IsMap():
		pairs := map[string]string{}
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			pairs[k.String()] = v.String()
			return true
		})
		for _, k := range slices.Sorted(maps.Keys(pairs)) {
			hashText(w, k)
			hashText(w, pairs[k])
		}
	case fd.IsList():
		for i := range v.List().Len() {
			hashValue(w, fd, v.List().Get(i))
		}
	default:
		hashValue(w, fd, v)
	}
}

func hashValue(w *strings.Builder, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	if fd.Kind() == protoreflect.MessageKind {
		hashMessage(w, v.Message())
		return
	}
	hashText(w, v.String())
}

func hashText(w *strings.Builder, text string) { fmt.Fprintf(w, "%d:%s", len(text), text) }
