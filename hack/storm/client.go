package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"

	"github.com/agbox/agbox/internal/wait"
)

const (
	image       = "agbox-base:dev"
	callTimeout = 5 * time.Second
	maxTries    = 8
	maxLive     = 2 // sandboxes of one client at a time
)

// client is one user of the API. Its actions depend only on the seed; their results do not.
type client struct {
	n    int
	api  agboxv1.SandboxServiceClient
	crew agboxv1.AgentServiceClient
	book *book
	rng  *rand.Rand
	site *site
	hogs bool // sandboxes with little memory run programs that allocate more

	made int
	live []*box
}

type box struct {
	id    string
	kind  kind
	execs []string
	asked int // number of execs
	// agent is the ID of the sandbox's agent, empty until it has one; told is the number of its prompts.
	agent string
	told  int
}

func newClient(n int, s *storm, conn *grpc.ClientConn) *client {
	return &client{n: n, api: agboxv1.NewSandboxServiceClient(conn), crew: agboxv1.NewAgentServiceClient(conn), book: s.book, site: s.site, hogs: s.has(faultOOM), rng: s.rng(100 + uint64(n))}
}

// run acts until ctx ends.
func (c *client) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.act(ctx)
		_ = wait.For(ctx, time.Duration(c.rng.Int64N(int64(400*time.Millisecond))))
	}
}

// act draws the same random numbers for any answers of the daemon, except for the choice of a sandbox.
func (c *client) act(ctx context.Context) {
	draw := c.rng.IntN(100)
	if len(c.live) == 0 || len(c.live) < maxLive && draw < 20 {
		c.create(ctx)
		return
	}
	b := c.live[c.rng.IntN(len(c.live))]
	switch {
	case draw < 55:
		c.exec(ctx, b)
	case draw < 62:
		c.cancel(ctx, b)
	case draw < 66:
		c.asked(ctx, "stop", b.id, simple, to(c.api.StopSandbox, &agboxv1.StopSandboxRequest{SandboxId: b.id}))
	case draw < 80:
		c.asked(ctx, "resume", b.id, simple, to(c.api.ResumeSandbox, &agboxv1.ResumeSandboxRequest{SandboxId: b.id}))
	case draw < 84:
		c.asked(ctx, "pause", b.id, simple, to(c.api.PauseSandbox, &agboxv1.PauseSandboxRequest{SandboxId: b.id}))
	case draw < 88:
		spec := c.spec(b.kind)
		spec.Labels = map[string]string{"turn": fmt.Sprint(draw, c.made)}
		c.asked(ctx, "update", b.id, simple, to(c.api.UpdateSandbox, &agboxv1.UpdateSandboxRequest{SandboxId: b.id, CreateSpec: spec}))
	case draw < 94:
		c.agent(ctx, b)
	case draw < 98:
		c.asked(ctx, "read", "all sandboxes", simple, to(c.api.ListSandboxes, &agboxv1.ListSandboxesRequest{IncludeDeleted: true}))
	default:
		// Most agents are kept, so that their conversations can be checked at the end.
		req := &agboxv1.DeleteSandboxRequest{SandboxId: b.id, KeepAgents: c.rng.IntN(4) > 0}
		if c.asked(ctx, "delete", b.id, simple, to(c.api.DeleteSandbox, req)) {
			c.live = slices.DeleteFunc(c.live, func(x *box) bool { return x == b })
		}
	}
}

// to is a call of one method with one request.
func to[Req, Resp any](method func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := method(ctx, req)
		return err
	}
}

// call repeats a request until a daemon answers it. ambiguous reports that an earlier attempt may have been accepted.
func (c *client) call(ctx context.Context, fn func(ctx context.Context) error) (code codes.Code, ambiguous bool) {
	for range maxTries {
		try, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "agbox-contract", "100"), callTimeout)
		err := fn(try)
		cancel()
		switch code = status.Code(err); code {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.ResourceExhausted, codes.Internal, codes.Unknown:
			ambiguous = true
			if code == codes.Internal || code == codes.Unknown {
				c.book.problem("a call was answered with %s: %v", code, err)
			}
		default:
			return code, ambiguous
		}
		if wait.For(ctx, 200*time.Millisecond) != nil {
			break
		}
	}
	return code, ambiguous
}

// answers are the valid answers to a call, besides a success and none.
type answers int

const (
	simple answers = iota // a refusal
	byID                  // a refusal; if the object exists after a lost answer, the call counts as accepted
	always                // as byID, without the refusal
)

// asked makes a call about an object, records each attempt, and counts the outcome.
func (c *client) asked(ctx context.Context, verb, id string, valid answers, fn func(ctx context.Context) error) (accepted bool) {
	code, ambiguous := c.call(ctx, func(ctx context.Context) error {
		c.book.try(verb, id)
		return fn(ctx)
	})
	switch {
	case code == codes.OK, code == codes.AlreadyExists && ambiguous && valid != simple:
		c.book.count(verb + " accepted")
		return true
	case code == codes.FailedPrecondition && valid != always:
		c.book.count(verb + " refused")
	case code == codes.Unavailable, code == codes.DeadlineExceeded, code == codes.Canceled, code == codes.ResourceExhausted,
		code == codes.Aborted && valid == simple:
		c.book.count(verb + " unanswered")
	default:
		c.book.problem("%s of %s was answered with %s", verb, id, code)
	}
	return false
}

var kinds = []kind{plain, plain, withService, wakes, small}

func (c *client) spec(k kind) *agboxv1.CreateSpec {
	spec := &agboxv1.CreateSpec{Image: image, Mounts: []*agboxv1.MountSpec{
		{Source: c.site.bin(), Target: "/storm"}, {Source: c.site.ledger(), Target: "/ledger", Writable: true},
	}}
	switch k {
	case withService:
		spec.RequiredServices = []*agboxv1.ServiceSpec{{
			Name: "db", Image: image, Command: []string{"sleep", "100000"},
			Healthcheck: &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}, Interval: durationpb.New(time.Second)},
		}}
	case wakes:
		spec.AutoResume = true
	case small:
		spec.MemoryLimit = "64MiB"
	case plain:
	}
	return spec
}

func (c *client) create(ctx context.Context) {
	c.made++
	b := &box{id: fmt.Sprintf("storm-%d-%d", c.n, c.made), kind: kinds[c.rng.IntN(len(kinds))]}
	if c.hogs && c.made%3 == 2 {
		b.kind = small
	}
	req := &agboxv1.CreateSandboxRequest{SandboxId: b.id, CreateSpec: c.spec(b.kind)}
	if c.asked(ctx, "create", b.id, always, to(c.api.CreateSandbox, req)) {
		c.book.acceptSandbox(b.id, b.kind)
		c.book.count("sandboxes " + string(b.kind))
		c.live = append(c.live, b)
	}
}

// exec creates an exec of a program that writes the ledger: short, long, noisy, failing, or one that allocates too much memory.
func (c *client) exec(ctx context.Context, b *box) {
	b.asked++
	id := fmt.Sprintf("led-%s-%d", b.id, b.asked)
	args := []string{"/storm/program", "-id", id}
	draw := c.rng.IntN(100)
	switch {
	case c.hogs && b.kind == small && draw%3 == 0:
		args = append(args, "-hog")
		c.book.count("execs that want too much memory")
	case draw < 45: // short
		args = append(args, "-lines", fmt.Sprint(draw))
	case draw < 60: // long
		args = append(args, "-lines", "200", "-pause", "50ms")
	case draw < 75: // noisy
		args = append(args, "-lines", "20000")
	default: // failing
		args = append(args, "-lines", "30", "-pause", "20ms", "-code", fmt.Sprint(1+draw%90))
	}
	req := &agboxv1.CreateExecRequest{SandboxId: b.id, ExecId: id, Command: args}
	if c.asked(ctx, "exec", id, byID, to(c.api.CreateExec, req)) {
		c.book.acceptExec(id, b.id)
		b.execs = append(b.execs, id)
	}
}

func (c *client) cancel(ctx context.Context, b *box) {
	draw := c.rng.IntN(1 << 16)
	if len(b.execs) == 0 {
		return
	}
	id := b.execs[len(b.execs)-1-draw%min(3, len(b.execs))]
	c.asked(ctx, "cancel", id, simple, to(c.api.CancelExec, &agboxv1.CancelExecRequest{ExecId: id}))
}

// follow watches the histories of a client's sandboxes, one after another, from the first event, across all restarts of the daemon. It
// checks that the stream has no gap and no duplicate event.
func follow(ctx context.Context, api agboxv1.SandboxServiceClient, b *book, n int) {
	for turn := 1; ctx.Err() == nil; turn++ {
		id := fmt.Sprintf("storm-%d-%d", n, turn)
		if !followOne(ctx, api, b, id) {
			turn-- // the sandbox does not exist yet
			_ = wait.For(ctx, 300*time.Millisecond)
		}
	}
}

const followFor = 15 * time.Second

func followOne(ctx context.Context, api agboxv1.SandboxServiceClient, b *book, id string) (known bool) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "agbox-contract", "100"), followFor)
	defer cancel()
	var last uint64
	for ctx.Err() == nil {
		stream, err := api.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: last})
		for err == nil {
			var ev *agboxv1.SandboxEvent
			if ev, err = stream.Recv(); err != nil {
				break
			}
			known = true
			if ev.GetSequence() != last+1 || ev.GetEventId() != fmt.Sprintf("%s-%d", id, last+1) {
				b.problem("the stream of %s gave event %s after %d", id, ev.GetEventId(), last)
			}
			last = ev.GetSequence()
			b.count("events followed")
			if slices.Contains(clockReasons, ev.GetSandboxPhase().GetReason()) {
				b.problem("event %d of %s, %s, is by %s, and no such time has passed", last, id, ev.GetEventType(), ev.GetSandboxPhase().GetReason())
			}
		}
		switch status.Code(err) {
		case codes.NotFound:
			if known {
				b.problem("sandbox %s, of which %d events were streamed, is not there any more", id, last)
			}
			return known
		case codes.OutOfRange:
			b.problem("the stream of %s knows nothing of event %d, which it gave before", id, last)
			return true
		}
		_ = wait.For(ctx, 100*time.Millisecond)
	}
	return known
}
