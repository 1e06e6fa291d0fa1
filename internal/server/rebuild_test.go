package server_test

import (
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

// rebuilt is a server whose records are being rebuilt for as long as why says so.
func rebuilt(t *testing.T, why *string) *fixture {
	t.Helper()
	return newFixture(t, func(d *server.Deps) { d.Rebuilding = func() string { return *why } })
}

func TestUnknownObjectsAreUnavailableDuringARebuild(t *testing.T) {
	var why string
	f := rebuilt(t, &why)
	ctx := t.Context()
	f.create("known", ready)
	f.exec("known", "exec1")
	why = "the records are being rebuilt; try again soon"
	for name, call := range map[string]func() error{
		"a create": func() error {
			_, err := f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "x"}})
			return err
		},
		"a dry run": func() error {
			_, err := f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "x"}, DryRun: true})
			return err
		},
		"an exec in a known sandbox": func() error {
			_, err := f.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: "known", Command: []string{"true"}})
			return err
		},
		"an unknown sandbox":      func() error { _, err := f.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: "nope"}); return err },
		"an unknown exec":         func() error { _, err := f.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: "nope"}); return err },
		"a stop of an unknown":    func() error { return f.stop("nope") },
		"a resume of an unknown":  func() error { return f.resume("nope") },
		"a pause of an unknown":   func() error { return f.pause("nope") },
		"a timeout of an unknown": func() error { _, err := f.after("nope", 0, false); return err },
		"a delete of an unknown": func() error {
			_, err := f.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: "nope"})
			return err
		},
		"an update of an unknown": func() error { _, err := f.update("nope", &agboxv1.CreateSpec{Image: "x"}, false); return err },
		"events of an unknown": func() error {
			s, err := f.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: "nope"})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { refused(t, call(), codes.Unavailable, "UNAVAILABLE", why, nil) })
	}
}

func TestKnownObjectsAreServedDuringARebuild(t *testing.T) {
	var why string
	f := rebuilt(t, &why)
	f.create("known", ready)
	f.exec("known", "exec1")
	why = "the records are being rebuilt"
	if h := f.get("known"); h.GetState() != ready {
		t.Errorf("%v", h)
	}
	_, err := f.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: "exec1"})
	f.must(err)
	_, err = f.Ping(t.Context(), &agboxv1.PingRequest{})
	f.must(err)
	_, err = f.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{})
	refused(t, err, codes.InvalidArgument, "INVALID_SPEC", "sandbox_id is required", nil)
	f.must(f.stop("known"))
	refused(t, f.resume("known"), codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "sandbox known is not stopped", nil)
}

// A record may come in while a call looks for it: what the call did not find is not known to be absent, even if the rebuild
// ends before its answer is made.
func TestALookupStartedDuringARebuildIsUnavailable(t *testing.T) {
	const sentence = "the records are being rebuilt"
	why := sentence
	f := newFixture(t, func(d *server.Deps) {
		d.Rebuilding = func() string { return why }
		d.Store = troubled{d.Store.(*store.Store), func() error {
			why = ""
			return fmt.Errorf("look: %w", errdefs.ErrNotFound)
		}}
	})
	_, err := f.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: "abcd"})
	refused(t, err, codes.Unavailable, "UNAVAILABLE", sentence, nil)
}
