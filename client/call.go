package client

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// awayNotice is after how long a caller is told that a daemon is waited for.
const awayNotice = time.Second

// method is a unary method of a generated client.
type method[Req, Resp any] func(context.Context, Req, ...grpc.CallOption) (Resp, error)

// once runs a method with a deadline and typed errors.
func once[Req, Resp any](ctx context.Context, c *Client, m method[Req, Resp], req Req, opts ...grpc.CallOption) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := m(ctx, req, opts...)
	return resp, c.fromStatus(err)
}

// call runs a method that asks for something. It is sent at most once: an answer that was lost may belong to a request
// that counted. Before, nothing is lost by waiting for a connection.
func call[Req, Resp any](ctx context.Context, c *Client, m method[Req, Resp], req Req) (Resp, error) {
	p := c.patient(ctx)
	defer p.end()
	p.connect()
	return once(ctx, c, m, req)
}

// read runs a method that changes nothing, again and again while the daemon is away and patience lasts.
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

// patience is the time that one call has for reaching a daemon.
type patience struct {
	c      *Client
	ctx    context.Context // ends with the time
	cancel context.CancelFunc
	notice *time.Timer // nil: nothing to tell so far
}

func (c *Client) patient(ctx context.Context) *patience {
	p := &patience{c: c}
	p.ctx, p.cancel = context.WithTimeout(ctx, c.patience)
	return p
}

// away starts the time after which the caller is told.
func (p *patience) away() {
	if p.notice == nil && p.c.onAway != nil {
		p.notice = time.AfterFunc(awayNotice, p.c.onAway)
	}
}

// over reports whether trying again makes no sense.
func (p *patience) over() bool { return p.ctx.Err() != nil || p.c.hopeless() }

func (p *patience) end() {
	if p.notice != nil {
		p.notice.Stop()
	}
	p.cancel()
}

// connect returns once the connection stands or there is no sense in waiting for it; the call then tells the error.
func (p *patience) connect() {
	conn := p.c.conn
	for conn != nil && p.c.patience > 0 {
		state := conn.GetState()
		if state == connectivity.Ready || state == connectivity.Shutdown {
			return
		}
		if state == connectivity.TransientFailure && p.over() {
			return
		}
		p.away()
		conn.Connect()
		if !conn.WaitForStateChange(p.ctx, state) {
			return
		}
	}
}

// hopeless reports whether no restart of a daemon is under way: its socket lies where it cannot come back to, or we may
// not use it.
func (c *Client) hopeless() bool {
	if c.conn == nil {
		return true
	}
	info, err := os.Stat(c.socket)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(c.socket))
		return err != nil
	}
	return err != nil || info.Mode().Type() != fs.ModeSocket
}
