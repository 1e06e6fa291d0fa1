package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// awayNotice is how long a call waits for the daemon before OnAway is called.
const awayNotice = time.Second

// method is a unary method of a generated client.
type method[Req, Resp any] func(context.Context, Req, ...grpc.CallOption) (Resp, error)

// once runs a method with a deadline and typed errors.
func once[Req, Resp any](ctx context.Context, c *Client, m method[Req, Resp], req Req, opts ...grpc.CallOption) (Resp, error) {
	if err := tooLarge(req); err != nil {
		var none Resp
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := m(ctx, req, opts...)
	return resp, c.fromStatus(err)
}

// tooLarge refuses a request for which the daemon's gRPC would answer without agboxd.
func tooLarge(req any) error {
	m, ok := req.(proto.Message)
	if !ok {
		return nil
	}
	n := proto.Size(m)
	if n <= agboxv1.MaxRequestBytes {
		return nil
	}
	return &Error{
		Code: codes.ResourceExhausted,
		Message: fmt.Sprintf("the request has %d bytes, and agboxd accepts at most %d (4 MiB) in one request: send less; files of a sandbox have no such limit",
			n, agboxv1.MaxRequestBytes),
	}
}

// call runs a method that changes something. It waits for a connection and then sends the request at most once, because a request
// with a lost answer may have been carried out.
func call[Req, Resp any](ctx context.Context, c *Client, m method[Req, Resp], req Req) (Resp, error) {
	p := c.patient(ctx)
	defer p.end()
	p.connect()
	return once(ctx, c, m, req)
}

// request is call for a method with an empty answer.
func request[Req, Resp any](ctx context.Context, c *Client, m method[Req, Resp], req Req) error {
	_, err := call(ctx, c, m, req)
	return err
}

// read runs a method that changes nothing, and retries it within patience while the daemon does not answer.
func read[Req, Resp any](ctx context.Context, c *Client, m method[Req, Resp], req Req) (Resp, error) {
	p := c.patient(ctx)
	defer p.end()
	var pause retry
	for {
		p.connect()
		resp, err := once(ctx, c, m, req)
		if !IsUnavailable(err) || p.over() {
			return resp, err
		}
		if p.away(); pause.wait(p.ctx) != nil {
			return resp, err
		}
	}
}

// patience bounds the time in which one call tries to reach a daemon.
type patience struct {
	c      *Client
	caller context.Context
	ctx    context.Context // ends with the time
	cancel context.CancelFunc
	notice *time.Timer // nil: nothing to report so far
}

func (c *Client) patient(ctx context.Context) *patience {
	p := &patience{c: c, caller: ctx}
	p.ctx, p.cancel = context.WithTimeout(ctx, c.patience)
	return p
}

// away starts the timer of awayNotice.
func (p *patience) away() {
	if p.notice == nil && p.c.onAway != nil {
		p.notice = time.AfterFunc(awayNotice, p.c.onAway)
	}
}

// over reports whether to stop retrying.
func (p *patience) over() bool { return p.ctx.Err() != nil || p.c.via == nil || p.c.via.hopeless() }

func (p *patience) end() {
	p.stopNotice()
	p.cancel()
}

func (p *patience) stopNotice() {
	if p.notice != nil && p.notice.Stop() {
		p.notice = nil
	}
}

// connect returns once the connection is established or waiting for it is hopeless; then the call returns the error. To connect to another
// host takes as long as it takes, such as until a user has typed a passphrase; the connection bounds it.
func (p *patience) connect() {
	conn, noticed := p.c.conn, p.notice != nil
	for conn != nil && p.c.patience > 0 {
		state := conn.GetState()
		if state == connectivity.Ready || state == connectivity.Shutdown {
			if !noticed {
				p.stopNotice() // a daemon that is connected and takes its time is not away
			}
			return
		}
		if state == connectivity.TransientFailure && p.over() {
			return
		}
		limit := p.ctx
		if p.c.via.remote() && state != connectivity.TransientFailure {
			limit = p.caller
		} else {
			p.away()
		}
		conn.Connect()
		if !conn.WaitForStateChange(limit, state) {
			return
		}
	}
}

// retry is the pause between tries to reach a daemon that went away. The connection has a back-off of its own; this
// one is for a daemon that accepts connections and then refuses or drops calls.
type retry struct {
	next    time.Duration
	since   time.Time // of the first notice
	noticed bool      // OnAway was called
}

// wait pauses, longer each time, up to maxPause. It returns the context's error when that ended.
func (r *retry) wait(ctx context.Context) error {
	r.next = min(max(2*r.next, firstPause), maxPause)
	timer := time.NewTimer(r.next/2 + rand.N(r.next/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *retry) reset() { *r = retry{} }

// notice calls onAway, once, unless stop is called before awayNotice has passed since the first notice; stop waits for a call that has started.
func (r *retry) notice(onAway func()) (stop func()) {
	if onAway == nil || r.noticed {
		return func() {}
	}
	if r.since.IsZero() {
		r.since = time.Now()
	}
	called := make(chan struct{})
	timer := time.AfterFunc(awayNotice-time.Since(r.since), func() {
		defer close(called)
		onAway()
	})
	return func() {
		if !timer.Stop() {
			<-called
			r.noticed = true
		}
	}
}
