package store

import (
	"context"
	"slices"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// maxTemplateBuilds bounds the records of builds. An owner's oldest ones that have ended, or were never started, make room for newer ones.
const maxTemplateBuilds = 1000

var buildNotFound = refusal("build_id", "TEMPLATE_BUILD_NOT_FOUND", errdefs.ErrNotFound, "build %s was not found")

// CreateTemplateBuild records a build, with its time. Beyond maxTemplateBuilds it drops the owner's oldest record for which mayDrop is true.
// Errors: Refusal TEMPLATE_BUILDS_FULL; ErrInvalidArgument; ErrAlreadyExists; ErrUnavailable.
func (s *Store) CreateTemplateBuild(ctx context.Context, id string, b *storev1.TemplateBuild, mayDrop func(id string, b *storev1.TemplateBuild) bool) error {
	if err := checkID("build ID", id); err != nil {
		return err
	}
	b = proto.CloneOf(b)
	return s.update(ctx, func(t *txn) error {
		all := templateBuilds(t.tx)
		if all[id] != nil {
			return refuse("build_id", id, "TEMPLATE_BUILD_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "build %s already exists", id)
		}
		if len(all) >= maxTemplateBuilds {
			oldest := ""
			for k, old := range all {
				if old.GetOwner() == b.GetOwner() && mayDrop(k, old) && (oldest == "" || old.GetCreatedAt() < all[oldest].GetCreatedAt()) {
					oldest = k
				}
			}
			if oldest == "" {
				return refuse("build_id", id, "TEMPLATE_BUILDS_FULL", errdefs.ErrResourceExhausted, "there are %d builds; delete a template first", len(all))
			}
			t.delete(bucketTemplateBuilds, oldest)
		}
		b.CreatedAt = t.now.UnixNano()
		t.put(bucketTemplateBuilds, id, b)
		return nil
	})
}

// StartTemplateBuild records that a build starts. Errors: Refusals TEMPLATE_BUILD_NOT_FOUND and TEMPLATE_BUILD_STARTED; ErrUnavailable.
func (s *Store) StartTemplateBuild(ctx context.Context, id string) error {
	return s.update(ctx, func(t *txn) error {
		b, err := templateBuild(t.tx, id)
		if err != nil {
			return err
		}
		if b.GetStartedAt() != 0 {
			return refuse("build_id", id, "TEMPLATE_BUILD_STARTED", errdefs.ErrFailedPrecondition, "build %s was started before", id)
		}
		b.StartedAt = t.now.UnixNano()
		t.put(bucketTemplateBuilds, id, b)
		return nil
	})
}

// EndTemplateBuild records the end of a build; an empty problem: it has succeeded. Errors: Refusal TEMPLATE_BUILD_NOT_FOUND; ErrUnavailable.
func (s *Store) EndTemplateBuild(ctx context.Context, id, problem string, step uint32) error {
	return s.update(ctx, func(t *txn) error {
		b, err := templateBuild(t.tx, id)
		if err != nil {
			return err
		}
		b.EndedAt, b.Error, b.ErrorStep = t.now.UnixNano(), problem, step
		t.put(bucketTemplateBuilds, id, b)
		return nil
	})
}

// RemoveTemplateBuilds removes records. Those that do not exist are no error. Errors: ErrUnavailable.
func (s *Store) RemoveTemplateBuilds(ctx context.Context, ids []string) error {
	ids = slices.Clone(ids)
	return s.update(ctx, func(t *txn) error {
		for _, id := range ids {
			if id != "" && get(t.tx, bucketTemplateBuilds, []byte(id)) != nil {
				t.delete(bucketTemplateBuilds, id)
			}
		}
		return nil
	})
}

// TemplateBuild returns the record of a build. Errors: Refusal TEMPLATE_BUILD_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) TemplateBuild(ctx context.Context, id string) (*storev1.TemplateBuild, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (*storev1.TemplateBuild, error) { return templateBuild(tx, id) })
}

// TemplateBuilds returns the records of all builds by ID. Those that do not decode are left out. Errors: ErrUnavailable.
func (s *Store) TemplateBuilds(ctx context.Context) (map[string]*storev1.TemplateBuild, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (map[string]*storev1.TemplateBuild, error) { return templateBuilds(tx), nil })
}

func templateBuild(tx *bolt.Tx, id string) (*storev1.TemplateBuild, error) {
	b, err := read[*storev1.TemplateBuild](tx, bucketTemplateBuilds, id)
	if errdefs.IsNotFound(err) {
		return nil, buildNotFound(id)
	}
	return b, err
}

func templateBuilds(tx *bolt.Tx) map[string]*storev1.TemplateBuild {
	found := map[string]*storev1.TemplateBuild{}
	for k, v := range records(tx, bucketTemplateBuilds, nil) {
		if b := (&storev1.TemplateBuild{}); decode(v, b) == nil {
			found[string(k)] = b
		}
	}
	return found
}
