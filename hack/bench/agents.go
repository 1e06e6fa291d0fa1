package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
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

// measureAgents writes the time from a prompt to its stored result, without the agent's own time, and the cost of many idle agents. Its
// error lists the broken promises.
func measureAgents(ctx context.Context, d *daemon, rounds int, w io.Writer) error {
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
	took, err := d.turns(ctx, boxes[0], rounds)
	if err != nil {
		return err
	}
	added := at(took, 50) - at(own, 50)
	fmt.Fprintf(w, "prompt to stored result, median\t%s\tof it the agent's own\t%s\tadded (promised: below %s)\t%s\n",
		at(took, 50), at(own, 50), mostAdded, added)
	problems, err := d.idle(ctx, boxes, w)
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

func (d *daemon) addAgent(ctx context.Context, box, id string) error {
	_, err := d.CreateAgent(ctx, &agboxv1.CreateAgentRequest{AgentId: id, Spec: &agboxv1.AgentSpec{SandboxId: box, Command: []string{"sh", "-c", echo}}})
	return err
}

// turns measures the time from the call to the result that a subscriber receives, which is stored by then.
func (d *daemon) turns(ctx context.Context, box string, rounds int) ([]time.Duration, error) {
	const id = "bench-turns"
	if err := d.addAgent(ctx, box, id); err != nil {
		return nil, err
	}
	if err := d.await(ctx, 1); err != nil {
		return nil, err
	}
	next, stop := iter.Pull2(d.AgentEvents(ctx, id, client.AgentEventOptions{}))
	defer stop()
	var list []time.Duration
	for range 10 * rounds {
		start := time.Now()
		p, err := d.PromptAgent(ctx, &agboxv1.PromptAgentRequest{AgentId: id, Text: "x"})
		if err != nil {
			return nil, err
		}
		for over := false; !over; {
			e, err, open := next()
			if err != nil || !open {
				return nil, cmp.Or(err, io.ErrUnexpectedEOF)
			}
			over = e.GetResult().GetPromptId() == p.GetPromptId()
		}
		list = append(list, time.Since(start))
	}
	return list, d.DeleteAgent(ctx, id)
}

// await waits until exactly want agents exist, all IDLE and reconciled.
func (d *daemon) await(ctx context.Context, want int) error {
	idle := 0
	err := poll(ctx, 10*time.Millisecond, func(ctx context.Context) (bool, error) {
		list, err := d.ListAgents(ctx, "", nil)
		idle = 0
		for _, a := range list {
			if a.GetState() == agboxv1.AgentState_AGENT_STATE_IDLE && !a.GetUnverified() {
				idle++
			}
		}
		return idle == want && len(list) == want, err
	})
	if err != nil {
		return fmt.Errorf("%d of %d agents are idle: %w", idle, want, err)
	}
	return nil
}
