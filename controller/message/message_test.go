package message

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestMessagesDoNotEndInTheNamesOfClasses(t *testing.T) {
	refused := fmt.Errorf("copies[0]: it is a FIFO: %w", errdefs.ErrInvalidArgument)
	for _, row := range []struct {
		err  error
		want string
	}{
		{refused, "copies[0]: it is a FIFO"},
		{fmt.Errorf("%w: %w", fmt.Errorf("pull: no such tag: %w", errdefs.ErrNotFound), errdefs.ErrNotFound), "pull: no such tag"},
		{errdefs.ErrNotFound, "not found"},
		{fmt.Errorf("start container %s: the port is in use", strings.Repeat("0123456789abcdef", 4)), "start container 0123456789ab: the port is in use"},
		{errors.New("the service said: not found"), "the service said: not found"},
		{fmt.Errorf("service db: %w", refused), "service db: copies[0]: it is a FIFO"},
	} {
		if got := Of(row.err); got != row.want {
			t.Errorf("got %q, want %q", got, row.want)
		}
	}
}
