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
		ValidArgsFunction: a.agentKind().first,
		Long: `Stream the output of an agent, and send it each line of standard input as a prompt. At the end of the input, attach returns after
the last answer; if no prompt was sent, it continues until ^C. Neither stops the agent.`,
		Example: "  agbox agent attach coder\n  agbox agent attach coder --all",
		Args:    one(oneAgent),
	}
	cmd.RunE = withOne(a.agentKind().full, func(ctx context.Context, one *agboxv1.AgentHandle) error { return a.attachAgent(ctx, one, all) })
	cmd.Flags().BoolVar(&all, "all", false, "show the whole conversation first")
	return cmd
}

// attached is one attachment.
type attached struct {
	*app
	agent *agboxv1.AgentHandle
	talk  *talk
	open  map[string]bool // prompts of this attachment whose turn has not ended
	asked bool
	eof   bool
}

func (a *app) attachAgent(ctx context.Context, agent *agboxv1.AgentHandle, all bool) error {
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
	err := at.run(ctx, from)
	if endErr := at.talk.end(); err == nil {
		err = endErr
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return &exitError{code: exitBrokenOut}
	case isInterrupt(ctx):
		fmt.Fprintf(a.Err, "detached; agent %s continues\n", agentName(agent))
	}
	return err
}

// run returns when the agent is deleted, when ctx ends, or when the input has ended and every prompt was answered.
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
			if err := at.prompt(ctx, line); err != nil {
				return err
			}
		case n := <-events:
			if err := at.handle(ctx, n); err != nil {
				return err
			}
		case err := <-failed:
			return err
		}
	}
	return nil
}

// input sends the lines of standard input, and closes the channel at its end. A blocked read ends with the process.
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

// typed reports whether the input is a terminal.
func (at *attached) typed() bool {
	f, ok := at.In.(*os.File)
	return ok && isTerminal(f)
}

// prompt queues a prompt. It prints a refusal and returns no error, so that the user can send another prompt.
func (at *attached) prompt(ctx context.Context, text string) error {
	req := &agboxv1.PromptAgentRequest{AgentId: at.agent.GetAgentId(), Text: text, PromptId: uuid.NewString()}
	at.asked, at.open[req.PromptId] = true, true
	if at.typed() && isTerminal(at.Out) {
		at.talk.own[req.PromptId] = true // the terminal has echoed it
	}
	err := validate.PromptAgent(req).Err()
	var resp *agboxv1.PromptAgentResponse
	if err == nil {
		resp, err = at.conn().PromptAgent(ctx, req)
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
