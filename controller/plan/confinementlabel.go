package plan

import (
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protojson"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// ConfinementLabel is the value of the confinement label, from which a record is rebuilt; empty for a sandbox without one.
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

// ParseConfinementLabel reads a confinement label; an absent one (empty) is nil. Fields that this release does not know are left
// out. Errors: ErrInvalidArgument.
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
