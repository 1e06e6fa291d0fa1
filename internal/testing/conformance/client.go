package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// patience bounds every wait for something that must happen.
const patience = 60 * time.Second

type (
	handle = agboxv1.SandboxHandle
	event  = agboxv1.SandboxEvent
	spec   = agboxv1.CreateSpec
)

const (
	pending = agboxv1.SandboxState_SANDBOX_STATE_PENDING
	ready   = agboxv1.SandboxState_SANDBOX_STATE_READY
	failed  = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	stopped = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	deleted = agboxv1.SandboxState_SANDBOX_STATE_DELETED
	unset   = agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED

	finished  = agboxv1.ExecState_EXEC_STATE_FINISHED
	cancelled = agboxv1.ExecState_EXEC_STATE_CANCELLED
)

// client is one connection, used by one test.
type client struct {
	testing.TB
	agboxv1.SandboxServiceClient
	agents agboxv1.AgentServiceClient
	conn   grpc.ClientConnInterface // declares no contract
	older  bool                     // it declares none either
	daemon Daemon
	target Target
}

func newClient(t testing.TB, target Target, d Daemon) *client {
	t.Helper()
	return connect(t, target, d, false)
}

func connect(t testing.TB, target Target, d Daemon, older bool) *client {
	t.Helper()
	conn, err := d.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	as := agboxv1.Declare(conn)
	if older {
		as = undeclared(t, conn)
	}
	return &client{
		TB: t, SandboxServiceClient: agboxv1.NewSandboxServiceClient(as), agents: agboxv1.NewAgentServiceClient(as), conn: conn,
		older: older, daemon: d, target: target,
	}
}

// sub runs a subtest beside the others.
func (c *client) sub(t *testing.T, name string, run func(*client)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		run(connect(t, c.target, c.daemon, c.older))
	})
}

// own runs a subtest with a daemon of its own beside the others.
func own(t *testing.T, target Target, name string, s Settings, run func(*client)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		run(newClient(t, target, target.Start(t, s)))
	})
}

func (c *client) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c.Cleanup(cancel)
	return ctx
}

func (c *client) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// newID returns an unused ID.
func newID() string { return "conf-" + strings.ToLower(rand.Text()[:12]) }

// create records a sandbox and returns its ID. It is deleted when the test ends.
func (c *client) create(change ...func(*spec)) string {
	c.Helper()
	s := &spec{Image: c.target.Image}
	for _, f := range change {
		f(s)
	}
	id := newID()
	h, err := c.tryCreate(&agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: s})
	c.must(err)
	if h.GetSandboxId() != id || h.GetState() != pending {
		c.Fatalf("created: %v", h)
	}
	return id
}

// tryCreate asks for a sandbox. If there is one then, it is deleted when the test ends.
func (c *client) tryCreate(req *agboxv1.CreateSandboxRequest) (*handle, error) {
	resp, err := c.CreateSandbox(c.ctx(), req)
	if err == nil {
		c.deleteAtEnd(resp.GetSandbox().GetSandboxId())
	}
	return resp.GetSandbox(), err
}

// tryPlain is tryCreate with nothing but an image.
func (c *client) tryPlain(id, name string) error {
	_, err := c.tryCreate(&agboxv1.CreateSandboxRequest{SandboxId: id, Name: name, CreateSpec: &spec{Image: c.target.Image}})
	return err
}

func (c *client) deleteAtEnd(id string) {
	c.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, _ = c.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}) // purged ones are gone
	})
}

// ready is create and the wait for READY.
func (c *client) ready(change ...func(*spec)) string {
	c.Helper()
	id := c.create(change...)
	c.await(id, ready)
	return id
}

func (c *client) get(id string) *handle {
	c.Helper()
	resp, err := c.GetSandbox(c.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id})
	c.must(err)
	return resp.GetSandbox()
}

func (c *client) isState(id string, want agboxv1.SandboxState) {
	c.Helper()
	if h := c.get(id); h.GetState() != want {
		c.Errorf("it is %s, not %s", h.GetState(), want)
	}
}

// accepted is the error of a call that answers with no more than that it was accepted.
func accepted(resp *agboxv1.AcceptedResponse, err error) error {
	if err == nil && !resp.GetAccepted() {
		return errors.New("not accepted")
	}
	return err
}

func (c *client) tryStop(id string) error {
	return accepted(c.StopSandbox(c.ctx(), &agboxv1.StopSandboxRequest{SandboxId: id}))
}

func (c *client) tryResume(id string) error {
	return accepted(c.ResumeSandbox(c.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))
}

func (c *client) tryDelete(id string) error {
	return accepted(c.DeleteSandbox(c.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: id}))
}

// stops, resumes and deletes make a call and wait until it is done.
func (c *client) stops(id string) {
	c.Helper()
	c.must(c.tryStop(id))
	c.await(id, stopped)
}

func (c *client) resumes(id string) {
	c.Helper()
	c.must(c.tryResume(id))
	c.await(id, ready)
}

func (c *client) deletes(id string) {
	c.Helper()
	c.must(c.tryDelete(id))
	c.await(id, deleted)
}

// await waits as the clients that exist do: read, subscribe from the sequence that was read, read again after each newer
// event, and fail on the first FAILED.
func (c *client) await(id string, want agboxv1.SandboxState) *handle {
	c.Helper()
	h := c.get(id)
	stream := c.subscribe(id, h.GetLastEventSequence(), false)
	for h.GetState() != want {
		if h.GetState() == failed {
			c.Fatalf("%s is FAILED: %s %s", id, h.GetErrorCode(), h.GetErrorMessage())
		}
		if e := stream.next(); e.GetSequence() > h.GetLastEventSequence() {
			h = c.get(id)
		}
	}
	return h
}

// stream is one subscription.
type stream struct {
	*client
	id string
	in grpc.ServerStreamingClient[event]
}

func (c *client) subscribe(id string, from uint64, snapshot bool) *stream {
	c.Helper()
	in, err := c.SubscribeSandboxEvents(c.ctx(), &agboxv1.SubscribeSandboxEventsRequest{
		SandboxId: id, FromSequence: from, IncludeCurrentSnapshot: snapshot,
	})
	c.must(err)
	if _, err := in.Header(); err != nil { // the subscription has begun, or is refused; both show in the stream
		c.Logf("header: %v", err)
	}
	return &stream{c, id, in}
}

func (s *stream) next() *event {
	s.Helper()
	e, err := s.in.Recv()
	if err != nil {
		s.Fatalf("events of %s: %v", s.id, err)
	}
	if e.GetSandboxId() != s.id || e.GetOccurredAt().CheckValid() != nil || e.GetOccurredAt().AsTime().IsZero() {
		s.Errorf("event without its due: %v", e)
	}
	if want := fmt.Sprintf("%s-%d", s.id, e.GetSequence()); !e.GetSnapshot() && e.GetEventId() != want {
		s.Errorf("event_id is %s, want %s", e.GetEventId(), want)
	}
	return e
}

// until returns all events up to and including the first one of a type.
func (s *stream) until(last agboxv1.EventType) []*event {
	s.Helper()
	for list := []*event(nil); ; {
		e := s.next()
		list = append(list, e)
		if e.GetEventType() == last {
			return list
		}
	}
}

// ends reads to the end of the stream, which is clean (nil) or an error.
func (s *stream) ends() error {
	for {
		if _, err := s.in.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// history returns all stored events, marked as a replay. Only for an older client they may have gaps.
func (c *client) history(id string) []*event {
	c.Helper()
	newest := c.get(id).GetLastEventSequence()
	s := c.subscribe(id, 0, false)
	var list []*event
	for last := uint64(0); last < newest; {
		e := s.next()
		gap := e.GetSequence() - last - 1
		if gap != 0 && !c.older || e.GetSequence() <= last || !e.GetReplay() || e.GetSnapshot() {
			c.Fatalf("after event %d: %v", last, e)
		}
		last, list = e.GetSequence(), append(list, e)
	}
	return list
}

// eventually looks until the check holds. It is for what no event announces.
func (c *client) eventually(check func() bool) {
	c.Helper()
	for deadline := time.Now().Add(patience); !check(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.Fatal("did not come")
		}
	}
}
