package plan

import (
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protojson"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

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
