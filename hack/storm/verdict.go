package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/agbox/agbox/apis/enum"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/audit"

	"github.com/agbox/agbox/internal/wait"
)

const (
	// settleTimeout is the timeout for the sandboxes to settle. It exceeds the longest backoff of a key.
	settleTimeout = 3 * time.Minute
	// auditPatience exceeds the resync interval of the storm's daemon.
	auditPatience = 15 * time.Second
)

// judge ends the storm: it waits until the sandboxes settle, audits, deletes everything, and audits again.
func (s *storm) judge(ctx context.Context, conn *grpc.ClientConn) error {
	api, crew := agboxv1.NewSandboxServiceClient(conn), agboxv1.NewAgentServiceClient(conn)
	ctx = metadata.AppendToOutgoingContext(ctx, "agbox-contract", "100")
	if err := s.settle(ctx, api, crew, false); err != nil {
		return err
	}
	if err := s.outcomes(ctx, api); err != nil {
		return err
	}
	s.histories(ctx, api)
	s.answers(ctx, api, crew)
	if err := s.audit(ctx, conn, "after the storm"); err != nil {
		return err
	}
	for id := range s.book.sandboxes {
		if _, err := api.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
			s.book.problem("delete of %s: %v", id, err)
		}
	}
	if err := s.settle(ctx, api, crew, true); err != nil {
		return err
	}
	if err := s.audit(ctx, conn, "after the deletes"); err != nil {
		return err
	}
	return s.nothingLeft()
}

// settle waits until every sandbox is at rest and no exec runs. It reports a sandbox that does not settle as a violation.
func (s *storm) settle(ctx context.Context, api agboxv1.SandboxServiceClient, crew agboxv1.AgentServiceClient, gone bool) error {
	start := time.Now()
	for {
		restless, err := s.restless(ctx, api, crew, gone)
		if err == nil && len(restless) == 0 {
			fmt.Printf("at rest after %s\n", time.Since(start).Round(100*time.Millisecond))
			return nil
		}
		if time.Since(start) > settleTimeout {
			if err != nil {
				return fmt.Errorf("the daemon does not answer after the storm: %w", err)
			}
			for _, what := range restless {
				s.book.problem("%s after %s", what, settleTimeout)
			}
			return nil
		}
		if wait.For(ctx, 500*time.Millisecond) != nil {
			return context.Cause(ctx)
		}
	}
}

func (s *storm) restless(ctx context.Context, api agboxv1.SandboxServiceClient, crew agboxv1.AgentServiceClient, gone bool) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := api.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{IncludeDeleted: true})
	if err != nil {
		return nil, err
	}
	agents, err := crew.ListAgents(ctx, &agboxv1.ListAgentsRequest{})
	if err != nil {
		return nil, err
	}
	ready := map[string]bool{}
	for _, sb := range list.GetSandboxes() {
		ready[sb.GetSandboxId()] = sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_READY
	}
	var restless []string
	processes := map[string]uint32{} // processes of agents, by sandbox
	for _, a := range agents.GetAgents() {
		idle := a.GetState() == agboxv1.AgentState_AGENT_STATE_IDLE
		starting := a.GetState() == agboxv1.AgentState_AGENT_STATE_STARTING
		busy := a.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY
		if idle || starting || busy {
			processes[a.GetSandboxId()]++
		}
		if ready[a.GetSandboxId()] && (starting || busy || idle && a.GetQueuedPrompts() > 0) {
			restless = append(restless, fmt.Sprintf("agent %s is %s with %d prompts (%s)", a.GetAgentId(), a.GetState(), a.GetQueuedPrompts(), a.GetStatusMessage()))
		}
	}
	for _, sb := range list.GetSandboxes() {
		state := sb.GetState()
		switch {
		case state == agboxv1.SandboxState_SANDBOX_STATE_DELETED:
		case gone, state == agboxv1.SandboxState_SANDBOX_STATE_PENDING, state == agboxv1.SandboxState_SANDBOX_STATE_DELETING,
			sb.GetDesiredState() != "", sb.GetActiveExecs() > processes[sb.GetSandboxId()] && state != agboxv1.SandboxState_SANDBOX_STATE_PAUSED:
			restless = append(restless, fmt.Sprintf("sandbox %s is %s with %d active execs (%s)", sb.GetSandboxId(), state, sb.GetActiveExecs(), sb.GetStatusMessage()))
		}
	}
	return restless, nil
}

// outcomes checks that every accepted sandbox and exec is on record. histories checks how they got there.
func (s *storm) outcomes(ctx context.Context, api agboxv1.SandboxServiceClient) error {
	for id := range s.book.sandboxes {
		resp, err := api.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
		if err != nil {
			s.book.count("LOST sandboxes")
			s.book.problem("accepted sandbox %s: %v", id, err)
			continue
		}
		sb := resp.GetSandbox()
		s.book.count("sandboxes now " + enum.Word(sb.GetState()))
		if sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_FAILED {
			s.book.count("sandboxes FAILED: " + sb.GetErrorCode())
		}
	}
	for id := range s.book.execs {
		resp, err := api.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: id})
		if err != nil {
			s.book.count("LOST execs")
			s.book.problem("accepted exec %s: %v", id, err)
			continue
		}
		e := resp.GetExec()
		if e.GetOomKilled() {
			s.book.count("execs told as killed for memory")
		}
		end := enum.Word(e.GetState())
		if e.GetErrorCode() != "" {
			end += " " + e.GetErrorCode()
		}
		s.book.count("execs " + end)
	}
	return nil
}

func (s *storm) audit(ctx context.Context, conn *grpc.ClientConn, when string) error {
	site := audit.Site{
		RunRoot: filepath.Join(s.site.state(), "s"), LogRoot: filepath.Join(s.site.state(), "exec-logs"), TxLog: filepath.Join(s.site.state(), "log"),
		Engine: "unix://" + s.site.socket, Ledger: s.site.ledger(), ScratchDir: s.site.home,
	}
	r, err := audit.Run(ctx, site, audit.FromDaemon(agboxv1.NewAdminServiceClient(conn)), audit.Options{Patience: auditPatience})
	if err != nil {
		return fmt.Errorf("audit %s: %w", when, err)
	}
	fmt.Printf("\naudit %s:\n", when)
	r.Write(os.Stdout)
	for _, f := range r.Violations {
		s.book.problem("audit %s: %s", when, f)
	}
	return nil
}

// nothingLeft reports directories of deleted sandboxes that are left on the disk, before sweep removes them.
func (s *storm) nothingLeft() error {
	for _, dir := range []string{"exec-logs", "s"} {
		entries, err := os.ReadDir(filepath.Join(s.site.state(), dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			s.book.problem("%s/%s is left after the deletes", dir, e.Name())
		}
	}
	return nil
}
