package store

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// AttachStdin records that an exec's standard input has a writer, so that no deadline runs. It writes nothing for an exec whose standard input
// stays open anyway. Errors: Refusals EXEC_NOT_FOUND and EXEC_ALREADY_TERMINAL; ErrDataLoss; ErrUnavailable.
func (s *Store) AttachStdin(ctx context.Context, execID string) error {
	return s.changeStdin(ctx, execID, func(d *storev1.ExecDesired, _ time.Time) {
		d.StdinAttached, d.StdinDeadline = true, 0
	})
}

// DetachStdin records that the writer has gone: the exec's policy applies after its grace. With keep its standard input stays open until the
// next writer has come and gone. Errors: as for AttachStdin.
func (s *Store) DetachStdin(ctx context.Context, execID string, keep bool) error {
	return s.changeStdin(ctx, execID, func(d *storev1.ExecDesired, ends time.Time) {
		d.StdinAttached, d.StdinDeadline = false, 0
		if !keep {
			d.StdinDeadline = ends.UnixNano()
		}
	})
}

func (s *Store) changeStdin(ctx context.Context, execID string, change func(d *storev1.ExecDesired, ends time.Time)) error {
	return s.update(ctx, func(t *txn) error {
		id, err := t.sandboxOf(execID)
		switch {
		case err != nil:
			return err
		case get(t.tx, prefixExecStatus+id, []byte(execID)) != nil:
			return execTerminal(execID)
		}
		req, err := read[*agboxv1.CreateExecRequest](t.tx, prefixExecConfig+id, execID)
		if err != nil {
			return fmt.Errorf("read request of exec %s: %w: %w", execID, err, errdefs.ErrDataLoss)
		}
		grace, ends := validate.StdinGrace(req.GetStdin())
		if !ends {
			return nil
		}
		d, err := read[*storev1.ExecDesired](t.tx, prefixExecDesired+id, execID)
		if err != nil {
			return fmt.Errorf("read intent of exec %s: %w: %w", execID, err, errdefs.ErrDataLoss)
		}
		change(d, t.now.Add(grace))
		t.touched = append(t.touched, Change{SandboxID: id, ExecID: execID})
		t.put(prefixExecDesired+id, execID, d)
		return nil
	})
}
