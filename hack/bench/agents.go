package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/wait"
)

// echo is an agent whose turns take no time.
const echo = `echo '{"type":"ready"}'
while read -r l; do case $l in *'"type":"prompt"'*) echo '{"type":"assistant.completed"}';; esac; done`

// Agents have no counterpart in Docker, so their results are compared with promised bounds.
const (
	mostAdded = 20 * time.Millisecond
	// crews is the number of sandboxes for the agents.
	crews = 10
)

type agents struct {
	*daemon
	agboxv1.AgentServiceClient
}

// measureAgents writes the time from a prompt to its stored result, without the agent's own time, and the cost of many idle agents. Its
// error lists the broken promises.
func measureAgents(ctx context.Context, d *daemon, rounds int, w io.Writer) error {
	m := &agents{d, agboxv1.NewAgentServiceClient(d.conn)}
	boxes := make([]string, crews)
	for i := range boxes {
		boxes[i] = fmt.Sprintf("bench-%d-agents-%d", os.Getpid(), i)
		if err := d.create(ctx, boxes[i]); err != nil {
			return err
		}
	}
	own, err := ownTime(ctx, rounds)
	if err != nil {
		return err
	}
	took, err := m.turns(ctx, boxes[0], rounds)
	if err != nil {
		return err
	}
	added := at(took, 50) - at(own, 50)
	fmt.Fprintf(w, "prompt to stored result, median\t%s\tof it the agent's own\t%s\tadded (promised: below %s)\t%s\n",
		at(took, 50), at(own, 50), mostAdded, added)
	problems, err := m.idle(ctx, boxes, w)
	if err != nil {
		return err
	}
	problems = append(problems, below("what agbox adds to a prompt, median", added, mostAdded))
	for _, id := range boxes {
		problems = append(problems, d.remove(ctx, id))
	}
	return errors.Join(problems...)
}

// ownTime returns the time of the agent's turns alone, measured through a pipe.
func ownTime(ctx context.Context, rounds int) (list []time.Duration, err error) {
	cmd := exec.CommandContext(ctx, "docker", "run", "--rm", "-i", image, "sh", "-c", echo)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close(), cmd.Wait()) }()
	line := make([]byte, 4096)
	if _, err := out.Read(line); err != nil { // the agent is ready
		return nil, err
	}
	for range 10 * rounds {
		start := time.Now()
		if _, err := io.WriteString(in, `{"type":"prompt","prompt_id":"x","text":"x"}`+"\n"); err != nil {
			return nil, err
		}
		if _, err := out.Read(line); err != nil {
			return nil, err
		}
		list = append(list, time.Since(start))
	}
	return list, nil
}

func (m *agents) start(ctx context.Context, box, id string) error {
	_, err := m.CreateAgent(ctx, &agboxv1.CreateAgentRequest{AgentId: id, Spec: &agboxv1.AgentSpec{SandboxId: box, Command: []string{"sh", "-c", echo}}})
	return err
}

// turns measures the time from the call to the result that a subscriber receives, which is stored by then.
func (m *agents) turns(ctx context.Context, box string, rounds int) ([]time.Duration, error) {
	const id = "bench-turns"
	if err := m.start(ctx, box, id); err != nil {
		return nil, err
	}
	if err := m.await(ctx, 1); err != nil {
		return nil, err
	}
	stream, err := m.SubscribeAgentEvents(ctx, &agboxv1.SubscribeAgentEventsRequest{AgentId: id})
	if err != nil {
		return nil, err
	}
	var list []time.Duration
	for range 10 * rounds {
		start := time.Now()
		p, err := m.PromptAgent(ctx, &agboxv1.PromptAgentRequest{AgentId: id, Text: "x"})
		if err != nil {
			return nil, err
		}
		for over := false; !over; {
			e, err := stream.Recv()
			if err != nil {
				return nil, err
			}
			over = e.GetResult().GetPromptId() == p.GetPromptId()
		}
		list = append(list, time.Since(start))
	}
	_, err = m.DeleteAgent(ctx, &agboxv1.DeleteAgentRequest{AgentId: id})
	return list, err
}

// await waits until exactly want agents exist, all IDLE and reconciled.
func (m *agents) await(ctx context.Context, want int) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for {
		list, err := m.ListAgents(ctx, &agboxv1.ListAgentsRequest{})
		if err != nil {
			return err
		}
		idle := 0
		for _, a := range list.GetAgents() {
			if a.GetState() == agboxv1.AgentState_AGENT_STATE_IDLE && !a.GetUnverified() {
				idle++
			}
		}
		if idle == want && len(list.GetAgents()) == want {
			return nil
		}
		if err := wait.For(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d agents are idle: %w", idle, want, err)
		}
	}
}
