package server_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

const (
	pending  = agboxv1.SandboxState_SANDBOX_STATE_PENDING
	ready    = agboxv1.SandboxState_SANDBOX_STATE_READY
	failed   = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	stopped  = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	deleting = agboxv1.SandboxState_SANDBOX_STATE_DELETING
	deleted  = agboxv1.SandboxState_SANDBOX_STATE_DELETED
)

// TestErrorTable has one row or more for each row of the contract's table.
func TestErrorTable(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for id, state := range map[string]agboxv1.SandboxState{
		"pending": pending, "ready": ready, "failed": failed, "stopped": stopped, "deleting": deleting, "deleted": deleted,
	} {
		f.create(id, state)
	}
	_, err := f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "x"}, Name: "taken"})
	f.must(err)
	f.exec("ready", "ended")
	f.endExec("ended")
	f.create("stopping", ready)
	_, err = f.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: "stopping"})
	f.must(err)

	create := func(req *agboxv1.CreateSandboxRequest) error { _, err := f.CreateSandbox(ctx, req); return err }
	spec := &agboxv1.CreateSpec{Image: "x"}
	yaml := func(text string) error { return create(&agboxv1.CreateSandboxRequest{ConfigYaml: []byte(text)}) }
	get := func(id string) error {
		_, err := f.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
		return err
	}
	stop := func(id string) error {
		_, err := f.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: id})
		return err
	}
	resume := func(id string) error {
		_, err := f.ResumeSandbox(ctx, &agboxv1.ResumeSandboxRequest{SandboxId: id})
		return err
	}
	del := func(id string) error {
		_, err := f.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id})
		return err
	}
	exec := func(sandboxID, execID string, command ...string) error {
		_, err := f.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: sandboxID, ExecId: execID, Command: command})
		return err
	}
	subscribe := func(id string, from uint64) error {
		s, err := f.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}

	invalid, exists, missing, wrongState := codes.InvalidArgument, codes.AlreadyExists, codes.NotFound, codes.FailedPrecondition
	field := func(path string) map[string]string { return map[string]string{"field": path} }
	sandbox := func(id string) map[string]string { return map[string]string{"sandbox_id": id} }
	execMeta := func(id string) map[string]string { return map[string]string{"exec_id": id} }
	for _, row := range []struct {
		err      error
		code     codes.Code
		reason   string
		message  string
		metadata map[string]string
	}{
		{yaml("image: [x"), invalid, "INVALID_SPEC", "", field("config_yaml")},
		{yaml("imago: x"), invalid, "INVALID_SPEC", "invalid config_yaml: line 1: imago: unknown key; did you mean image?", field("config_yaml")},
		{yaml("image: x\nimage: y"), invalid, "INVALID_SPEC", "invalid config_yaml: line 2: image: duplicate key; first on line 1", field("config_yaml")},
		{yaml(" \n"), invalid, "INVALID_SPEC", "invalid config_yaml: the text is empty", field("config_yaml")},
		{create(&agboxv1.CreateSandboxRequest{}), invalid, "INVALID_SPEC", "create_spec is required", field("create_spec")},
		{create(&agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{}}), invalid, "INVALID_SPEC", "create_spec.image is required", field("image")},
		{yaml("envs: {A: b}"), invalid, "INVALID_SPEC", "create_spec.image is required", field("image")},
		{yaml("image: x\nmounts: [{source: ~/nope/at/all, target: x}]"), invalid, "INVALID_SPEC", "mounts[0].target must be an absolute path", field("mounts[0].target")},
		{yaml("image: x\nmounts: [{source: ~/nope/at/all, target: /x}]"), invalid, "INVALID_SPEC", `mounts[0].source "/home/u/nope/at/all" does not exist on this host`, field("mounts[0].source")},
		{create(&agboxv1.CreateSandboxRequest{CreateSpec: spec, SandboxId: "-"}), invalid, "INVALID_SPEC", `sandbox_id must be 4 to 200 ASCII letters, digits, "-" and "_", the first and last a letter or digit`, field("sandbox_id")},
		{create(&agboxv1.CreateSandboxRequest{CreateSpec: spec, Name: "A"}), invalid, "INVALID_SPEC", `name must be 1 to 63 lower-case ASCII letters, digits and "-", the first and last a letter or digit`, field("name")},
		{create(&agboxv1.CreateSandboxRequest{CreateSpec: spec, SandboxId: "ready"}), exists, "SANDBOX_ID_ALREADY_EXISTS", "sandbox_id ready already exists", sandbox("ready")},
		{create(&agboxv1.CreateSandboxRequest{CreateSpec: spec, SandboxId: "deleted"}), exists, "SANDBOX_ID_ALREADY_EXISTS", "sandbox_id deleted already exists", sandbox("deleted")},
		{create(&agboxv1.CreateSandboxRequest{CreateSpec: spec, Name: "taken"}), exists, "SANDBOX_NAME_ALREADY_EXISTS", "sandbox name taken already exists", nil},
		{get("nope"), missing, "SANDBOX_NOT_FOUND", "sandbox nope was not found", sandbox("nope")},
		{get(""), invalid, "INVALID_SPEC", "sandbox_id is required", field("sandbox_id")},
		{stop("nope"), missing, "SANDBOX_NOT_FOUND", "sandbox nope was not found", sandbox("nope")},
		{resume("nope"), missing, "SANDBOX_NOT_FOUND", "sandbox nope was not found", sandbox("nope")},
		{del("nope"), missing, "SANDBOX_NOT_FOUND", "sandbox nope was not found", sandbox("nope")},
		{subscribe("nope", 0), missing, "SANDBOX_NOT_FOUND", "sandbox nope was not found", sandbox("nope")},
		{exec("nope", "", "true"), missing, "SANDBOX_NOT_FOUND", "sandbox nope was not found", sandbox("nope")},
		{resume("ready"), wrongState, "SANDBOX_INVALID_STATE", "sandbox ready is not stopped", sandbox("ready")},
		{resume("failed"), wrongState, "SANDBOX_INVALID_STATE", "sandbox failed is not stopped", sandbox("failed")},
		{stop("pending"), wrongState, "SANDBOX_INVALID_STATE", "sandbox pending is not ready", sandbox("pending")},
		{stop("stopped"), wrongState, "SANDBOX_INVALID_STATE", "sandbox stopped is not ready", sandbox("stopped")},
		{stop("stopping"), codes.OK, "", "", nil},
		{del("deleting"), codes.OK, "", "", nil},
		{del("deleted"), codes.OK, "", "", nil},
		{get("deleted"), codes.OK, "", "", nil},
		{func() error { _, err := f.DeleteSandboxes(ctx, &agboxv1.DeleteSandboxesRequest{}); return err }(), invalid, "INVALID_SPEC", "label_selector must not be empty", field("label_selector")},
		{subscribe("ready", 99), codes.OutOfRange, "SANDBOX_EVENT_SEQUENCE_EXPIRED", "sandbox ready event sequence 99 is outside retained history",
			map[string]string{"sandbox_id": "ready", "from_sequence": "99", "oldest_sequence": "1"}},
		{exec("pending", "", "true"), wrongState, "SANDBOX_NOT_READY", "sandbox pending is not ready", sandbox("pending")},
		{exec("stopping", "", "true"), wrongState, "SANDBOX_NOT_READY", "sandbox stopping is not ready", sandbox("stopping")},
		{exec("ready", ""), invalid, "INVALID_SPEC", "command must not be empty", field("command")},
		{exec("ready", "ended", "true"), exists, "EXEC_ID_ALREADY_EXISTS", "exec_id ended already exists", execMeta("ended")},
		{func() error { _, err := f.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: "nope"}); return err }(), missing, "EXEC_NOT_FOUND", "exec nope was not found", execMeta("nope")},
		{func() error { _, err := f.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: "nope"}); return err }(), missing, "EXEC_NOT_FOUND", "exec nope was not found", execMeta("nope")},
		{func() error { _, err := f.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: "ended"}); return err }(), wrongState, "EXEC_ALREADY_TERMINAL", "exec ended is already terminal", execMeta("ended")},
		{func() error { _, err := f.GetExec(ctx, &agboxv1.GetExecRequest{}); return err }(), invalid, "INVALID_SPEC", "exec_id is required", field("exec_id")},
	} {
		if row.code == codes.OK {
			f.must(row.err)
			continue
		}
		message := row.message
		if message == "" { // the YAML parser's own words
			message = status.Convert(row.err).Message()
			if !strings.HasPrefix(message, "invalid config_yaml: ") {
				t.Errorf("message %q", message)
			}
		}
		refused(t, row.err, row.code, row.reason, message, row.metadata)
	}
}

func TestAllBrokenRulesAtOnce(t *testing.T) {
	f := newFixture(t)
	spec := &agboxv1.CreateSpec{BuiltinTools: []string{"nope"}, Envs: map[string]string{"1": "hidden"}}
	_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec})
	const message = "create_spec.image is required; " +
		`builtin_tools[0] "nope" is not known: write claude, codex, git, uv, npm, apt, opencode; ` +
		`envs[1] has a bad name: ASCII letters, digits, "_", "." and "-", the first a letter or "_"`
	refused(t, err, codes.InvalidArgument, "INVALID_SPEC", message, map[string]string{"field": "image"})
	if got := violations(err); len(got) != 3 || got[1].GetField() != "builtin_tools[0]" {
		t.Errorf("got %v", got)
	}

	spec.Envs = map[string]string{}
	for i := range 4000 {
		spec.Envs[fmt.Sprintf("%d-%s", i, strings.Repeat("x", 100))] = "hidden"
	}
	_, err = f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec})
	st := status.Convert(err)
	if size := len(st.Message()) + len(fmt.Sprint(st.Proto())); size > 6000 || !strings.Contains(st.Message(), "more") || strings.Contains(fmt.Sprint(st.Proto()), "hidden") {
		t.Errorf("%d bytes: %s", size, st.Message())
	}
	if all, err := f.ListSandboxes(t.Context(), &agboxv1.ListSandboxesRequest{}); err != nil || len(all.GetSandboxes()) != 0 {
		t.Errorf("something was stored: %v, %v", all, err)
	}
}

func violations(err error) []*errdetails.BadRequest_FieldViolation {
	for _, d := range status.Convert(err).Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			return bad.GetFieldViolations()
		}
	}
	return nil
}

func TestMountSources(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	f.must(os.WriteFile(path("file"), nil, 0o600))
	f.must(os.Mkdir(path("dir"), 0o700))
	f.must(os.WriteFile(path("dir/inner"), nil, 0o600))
	f.must(os.Symlink(path("file"), path("link")))
	f.must(os.Symlink(path("dir"), path("dirlink")))
	f.must(os.Symlink(path("nowhere"), path("dangling")))
	f.must(syscall.Mkfifo(path("fifo"), 0o600))
	for source, want := range map[string]string{
		"file": "", "dir": "", "dir/inner": "", "dirlink/inner": "",
		"link":     "is, or goes through, a symbolic link; write " + fmt.Sprintf("%q", path("file")),
		"dangling": "does not exist on this host",
		"gone":     "does not exist on this host",
		"file/x":   "cannot be inspected: not a directory",
		"fifo":     "is not a file, directory or socket",
	} {
		resp, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{
			Image: "x", Mounts: []*agboxv1.MountSpec{{Source: "/srv", Target: "/ok"}, {Source: path(source), Target: "/x"}},
		}})
		if want == "" {
			f.must(err)
			recorded, _ := strings.CutPrefix(resp.GetSandbox().GetSpec().GetMounts()[1].GetSource(), dir+"/")
			if recorded != strings.Replace(source, "dirlink", "dir", 1) {
				t.Errorf("%s is recorded as %s", source, recorded)
			}
			continue
		}
		refused(t, err, codes.InvalidArgument, "INVALID_SPEC", fmt.Sprintf("mounts[1].source %q %s", path(source), want), map[string]string{"field": "mounts[1].source"})
	}
}

// troubled is a store whose reads fail or panic.
type troubled struct {
	*store.Store
	fail func() error
}

func (s troubled) Sandbox(context.Context, string) (store.Sandbox, error) {
	return store.Sandbox{}, s.fail()
}

func TestTroubleShowsNoInternals(t *testing.T) {
	var fail func() error
	var log bytes.Buffer
	f := newFixture(t, func(d *server.Deps) {
		d.Store = troubled{d.Store.(*store.Store), func() error { return fail() }}
		d.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	for name, tc := range map[string]struct {
		fail   func() error
		code   codes.Code
		reason string
		text   string
	}{
		"unclassified": {func() error { return fmt.Errorf("bolt secret-page") }, codes.Internal, "INTERNAL", "internal error (request "},
		"panic":        {func() error { panic("secret-page") }, codes.Internal, "INTERNAL", "internal error (request "},
		"unavailable":  {func() error { return fmt.Errorf("secret-page: %w", errdefs.ErrUnavailable) }, codes.Unavailable, "UNAVAILABLE", "not available at the moment"},
		"lost race":    {func() error { return fmt.Errorf("secret-page: %w", errdefs.ErrAborted) }, codes.Aborted, "ABORTED", "something else changed it"},
		"data loss":    {func() error { return fmt.Errorf("secret-page: %w", errdefs.ErrDataLoss) }, codes.DataLoss, "DATA_LOSS", "a stored record does not decode"},
	} {
		fail = tc.fail
		log.Reset()
		_, err := f.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: "abcd"})
		message := status.Convert(err).Message()
		refused(t, err, tc.code, tc.reason, message, nil)
		if !strings.HasPrefix(message, tc.text) || strings.Contains(fmt.Sprint(status.Convert(err).Proto()), "secret-page") {
			t.Errorf("%s: message %q", name, message)
		}
		_, request, _ := strings.Cut(message, "(request ")
		if !strings.Contains(log.String(), "secret-page") || !strings.Contains(log.String(), strings.TrimSuffix(request, ")")) {
			t.Errorf("%s: log %q does not explain %q", name, log.String(), message)
		}
	}
}
