package dockerx

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func TestAQuotaOfTheEngineIsNoRefusal(t *testing.T) {
	for _, class := range []error{errdefs.ErrInternal, errdefs.ErrInvalidArgument, nil} {
		answer := errors.Join(errors.New("write /var/lib/docker/x: disk quota exceeded"), class)
		err := classify(context.Background(), time.Second, answer)
		if !errdefs.IsUnavailable(err) || errdefs.IsInvalidArgument(err) || err.Error() != answer.Error() {
			t.Errorf("%v becomes %v", answer, err)
		}
	}
}
