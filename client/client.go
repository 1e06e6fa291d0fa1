package client

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	// callTimeout bounds a call whose context has no deadline. The daemon answers or refuses within 30 s.
	callTimeout = 40 * time.Second
	// maxReply holds lists of some hundred thousand sandboxes.
	maxReply = 256 << 20
	// connectTimeout bounds one try to connect. A daemon that is not there is noticed at once; this is for a busy one.
	connectTimeout = 10 * time.Second
	// Pauses between tries to reach a daemon that went away.
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// Client is a connection to one agboxd. It connects when needed and again when it was cut.
type Client struct {
	sandboxes agboxv1.SandboxServiceClient
	admin     agboxv1.AdminServiceClient
	socket    string // empty when the connection is the caller's
	close     func() error
}

// Dial prepares a client for the socket, a path. It does no I/O: the first call tells whether a daemon answers.
func Dial(socket string) (*Client, error) {
	socket = SocketPath(socket)
	// Not the "unix:" scheme: it reads the path as part of a URL, and a path may hold a "%" or a "?".
	conn, err := grpc.NewClient("passthrough:///agboxd",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxPause},
			MinConnectTimeout: connectTimeout,
		}),
	)
	if err != nil {
		return nil, err
	}
	c := New(conn)
	c.socket, c.close = socket, conn.Close
	return c, nil
}

// New returns a client on a connection that stays the caller's.
func New(conn grpc.ClientConnInterface) *Client {
	return &Client{
		sandboxes: agboxv1.NewSandboxServiceClient(conn),
		admin:     agboxv1.NewAdminServiceClient(conn),
		close:     func() error { return nil },
	}
}

// Close ends the connection if Dial made it. Calls that are under way fail.
func (c *Client) Close() error { return c.close() }

// call runs one unary method with a deadline and typed errors.
func call[Req, Resp any](ctx context.Context, c *Client, method func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req, opts ...grpc.CallOption) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := method(ctx, req, opts...)
	return resp, c.fromStatus(err)
}
