package server_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
)

func TestALowDiskRefusesOnlyNewWork(t *testing.T) {
	var why string
	f := newAgents(t, func(d *server.Deps) { d.NoRoom = func() string { return why } })
	ctx := t.Context()
	for id, state := range map[string]agboxv1.SandboxState{"known": ready, "other": ready, "halted": stopped, "broken": ready} {
		f.create(id, state)
	}
	f.report("broken", failed)
	f.exec("known", "exec1")
	for _, id := range []string{"moves", "stops", "goes"} {
		_, err := f.createAgent(id, id)
		f.must(err)
	}
	why = "the disk has 1.0 MiB left"
	spec := &agboxv1.CreateSpec{Image: "x"}
	for what, call := range map[string]func() error{
		"a create": func() error {
			_, err := f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: spec})
			return err
		},
		"the rehearsal of apply --replace": func() error {
			_, err := f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: spec, DryRun: true, Replaces: "known"})
			return err
		},
		"an exec": func() error {
			_, err := f.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: "known", Command: []string{"true"}})
			return err
		},
		"an agent": func() error { _, err := f.createAgent("new", "new"); return err },
		"a prompt": func() error { _, err := f.prompt("moves", "p", "hi"); return err },
	} {
		t.Run(what, func(t *testing.T) { refused(t, call(), codes.Unavailable, "DISK_FULL", why, nil) })
	}
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"a read", func() error { _, err := f.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: "known"}); return err }},
		{"a cancel", func() error { _, err := f.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: "exec1"}); return err }},
		{"a timeout", func() error { _, err := f.after("other", time.Hour, false); return err }},
		{"an update", func() error {
			_, err := f.update("other", &agboxv1.CreateSpec{Image: "x", CpuLimit: 2}, false)
			return err
		}},
		{"a pause", func() error { return f.pause("other") }},
		{"a resume", func() error { return f.resume("halted") }},
		{"a recover", func() error {
			_, err := f.ResumeSandbox(ctx, &agboxv1.ResumeSandboxRequest{SandboxId: "broken", Recover: true})
			return err
		}},
		{"a move of an agent", func() error { return f.move("moves", "known") }},
		{"a stop of an agent", func() error {
			_, err := f.agents.StopAgent(ctx, &agboxv1.StopAgentRequest{AgentId: "stops"})
			return err
		}},
		{"a start of an agent", func() error {
			_, err := f.agents.StartAgent(ctx, &agboxv1.StartAgentRequest{AgentId: "stops"})
			return err
		}},
		{"a delete of an agent", func() error {
			_, err := f.agents.DeleteAgent(ctx, &agboxv1.DeleteAgentRequest{AgentId: "goes"})
			return err
		}},
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
