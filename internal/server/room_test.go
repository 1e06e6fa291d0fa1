package server_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
)

func TestWithoutRoomNothingNewBeginsAndAllElseGoesOn(t *testing.T) {
	var why string
	f := newFixture(t, func(d *server.Deps) { d.NoRoom = func() string { return why } })
	ctx := t.Context()
	f.create("known", ready)
	f.exec("known", "exec1")
	why = "the disk has 1.0 MiB left"
	_, err := f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "x"}})
	refused(t, err, codes.Unavailable, "DISK_FULL", why, nil)
	_, err = f.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: "known", Command: []string{"true"}})
	refused(t, err, codes.Unavailable, "DISK_FULL", why, nil)
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"a read", func() error { _, err := f.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: "known"}); return err }},
		{"a cancel", func() error { _, err := f.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: "exec1"}); return err }},
		{"a stop", func() error { return f.stop("known") }},
		{"a delete", func() error {
			_, err := f.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: "known"})
			return err
		}},
	} {
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
