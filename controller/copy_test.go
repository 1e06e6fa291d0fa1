package controller_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
)

// The engine would follow the link, and write on the host if it leads into a mount.
func TestACopyDoesNotGoThroughALinkInTheContainer(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		for _, err := range []error{os.Mkdir(p.dir+"/tree", 0o755), os.Mkdir(p.dir+"/tree/real", 0o755), os.Symlink("real", p.dir+"/tree/link"), os.WriteFile(p.dir+"/tree/real/x", nil, 0o600)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		spec := &agboxv1.CreateSpec{Image: image, Copies: []*agboxv1.CopySpec{
			{Source: p.dir + "/tree", Target: "/data"}, {Source: p.dir + "/tree/real", Target: "/data/link/more"},
		}}
		if _, err := p.store.CreateSandbox(t.Context(), "box", "", spec, nil); err != nil {
			t.Fatal(err)
		}
		p.boxes = append(p.boxes, "box")
		pass(settle)
		sb, err := p.store.Sandbox(t.Context(), "box")
		if err != nil || sb.State != failed || !strings.Contains(sb.ErrorMessage, `copies[1]: target "/data/link/more" goes through "/data/link"`) {
			t.Errorf("%v, %s %s", err, sb.State, sb.ErrorMessage)
		}
	})
}

// oddImage has a list of users that is not a regular file.
type oddImage struct{ controller.Engine }

func (oddImage) ReadContainerFile(context.Context, string, string, int64) ([]byte, error) {
	return nil, fmt.Errorf("not a regular file: %w", errdefs.ErrFailedPrecondition)
}

// An image does not change: a retry would fail forever.
func TestACopyIntoAnImageWithoutReadableUsersFails(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{Copies: []*agboxv1.CopySpec{{Source: p.dir, Target: "/data"}}})
		pass(time.Minute)
		p.wantState(t, id, failed)
		if m := p.sandbox(t, id).ErrorMessage; !strings.Contains(m, "/etc/passwd") {
			t.Errorf("it says %q", m)
		}
	}, func(c *controller.Config) { c.Engine = oddImage{c.Engine} })
}
