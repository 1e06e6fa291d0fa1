package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// SpecHash identifies what version 1 covers of a spec: image, mounts and envs of the primary. More is fixed in containers once
// they exist; a version that covers it would be another one. A hash of a version that is not known here says nothing about
// drift.
func SpecHash(spec *agboxv1.CreateSpec) string {
	h := sha256.New()
	field := func(parts ...string) {
		for _, p := range parts {
			fmt.Fprintf(h, "%d:%s", len(p), p)
		}
	}
	field("image", spec.GetImage())
	for _, m := range spec.GetMounts() {
		field("mount", m.GetSource(), m.GetTarget(), fmt.Sprint(m.GetWritable()))
	}
	for _, k := range slices.Sorted(maps.Keys(spec.GetEnvs())) {
		field("env", k, spec.GetEnvs()[k])
	}
	return "v1:" + hex.EncodeToString(h.Sum(nil))[:32]
}

// SpecLabel is the value of the spec label, version 1: the spec as JSON with the keys of all envs but not their values,
// which the containers' own environments hold. It is what a lost store is rebuilt from. A spec that needs more than
// maxSpecLabel has none (empty): each list of the engine's containers repeats it.
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
	label, err := json.Marshal(struct {
		Version int             `json:"version"`
		Spec    json.RawMessage `json:"spec"`
		EnvKeys []string        `json:"env_keys,omitempty"`
	}{1, body, keys})
	if err != nil {
		return "", fmt.Errorf("encode spec label: %w", err)
	}
	if len(label) > maxSpecLabel {
		return "", nil
	}
	return string(label), nil
}

// maxSpecLabel is in bytes.
const maxSpecLabel = 64 << 10
