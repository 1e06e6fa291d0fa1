package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/client"
)

func (a *app) agentAttachCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "attach NAME", SuggestFor: []string{"follow", "watch", "logs", "chat", "talk"}, Short: "Follow an agent, and send it typed lines as prompts",
		ValidArgsFunction: a.completeAgent,
		Long: `Stream the output of an agent, and send it each line of standard input as a prompt. At the end of the input, attach returns after
the last answer; if no prompt was sent, it continues until ^C. Neither stops the agent.`,
		Example: "  agbox agent attach coder\n  agbox agent attach coder --all",
		Args:    one(oneAgent),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.attachAgent(cmd.Context(), args[0], all) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "begin with the whole conversation")
	return cmd
}

// attached is one attachment.
type attached struct {
	*app
	agent *agboxv1.AgentHandle
	talk  *talk
	open  map[string]bool // prompts of ours whose turn has not ended
	asked bool
	eof   bool
}

func (a *app) attachAgent(ctx context.Context, ref string, all bool) error {
	agent, err := a.fullAgent(ctx, ref)
	if err != nil {
		return err
	}
	from := agent.GetLastEventSequence()
	if all {
		from = 0
	}
	at := &attached{app: a, agent: agent, talk: newTalk(a.Out, a.Out), open: map[string]bool{}}
	at.talk.users, at.talk.results = true, true
	fmt.Fprintf(a.Err, "attached to agent %s, which is %s; ^C detaches\n", agentName(agent), agentState(agent))
	if hint := asleep(agent); hint != "" {
		fmt.Fprintln(a.Err, "note: "+oneLine(hint))
	}
	err = at.run(ctx, from)
	if endErr := at.talk.end(); err == nil {
		err = endErr
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return &exitError{code: exitBrokenOut}
	case isInterrupt(ctx):
		fmt.Fprintf(a.Err, "detached; agent %s goes on\n", agentName(agent))
	}
	return err
}

// run goes on until the agent is gone, ctx ends, or the input has and everything that was asked was answered.
func (at *attached) run(ctx context.Context, from uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := at.input(ctx)
	events, failed := at.events(ctx, from)
	for !at.eof || !at.asked || len(at.open) > 0 {
		select {
		case line, more := <-lines:
			if !more {
				at.eof, lines = true, nil
				if at.typed() {
					return nil // ^D
				}
				if err := at.hopeless(ctx); err != nil {
					return err
				}
				continue
			}
			if err := at.say(ctx, line); err != nil {
				return err
			}
		case n := <-events:
			if err := at.take(ctx, n); err != nil {
				return err
			}
		case err := <-failed:
			return err
		}
	}
	return nil
}

// input hands over the lines of standard input, and closes the channel at its end. A read that is under way is left behind
// for the end of the process.
func (at *attached) input(ctx context.Context) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		in := bufio.NewReader(at.In)
		for {
			line, err := in.ReadString('\n')
			if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) != "" {
				select {
				case lines <- line:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// typed says whether somebody sits at the input.
func (at *attached) typed() bool {
	f, ok := at.In.(*os.File)
	return ok && isTerminal(f)
}

// say gives the agent a prompt. One that is refused is told, and the next one may be better.
func (at *attached) say(ctx context.Context, text string) error {
	req := &agboxv1.PromptAgentRequest{AgentId: at.agent.GetAgentId(), Text: text, PromptId: uuid.NewString()}
	at.asked, at.open[req.PromptId] = true, true
	if at.typed() && isTerminal(at.Out) {
		at.talk.own[req.PromptId] = true // it stands on the screen already
	}
	err := validate.PromptAgent(req).Err()
	var resp *agboxv1.PromptAgentResponse
	if err == nil {
		resp, err = at.conn.PromptAgent(ctx, req)
	}
	if err != nil {
		delete(at.open, req.PromptId)
		if ctx.Err() != nil || client.IsNotFound(err) {
			return err
		}
		at.complain(at.agentRefused(ctx, "prompt", at.agent, err))
		return nil
	}
	if resp.GetAhead() > 0 {
		fmt.Fprintf(at.Err, "queued%s\n", aheadText(resp.GetAhead()))
	}
	return nil
}
