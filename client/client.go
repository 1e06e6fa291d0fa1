package client

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
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
	agents    agboxv1.AgentServiceClient
	admin     agboxv1.AdminServiceClient
	via       via // nil when the connection is the caller's
	streams   agboxv1.StreamServiceClient
	files     agboxv1.FileServiceClient
	gateways  agboxv1.GatewayServiceClient
	templates agboxv1.TemplateServiceClient
	close     func() error
	conn      *grpc.ClientConn // nil when the connection is the caller's
	patience  time.Duration
	onAway    func()
}

// Options change how a Client behaves.
type Options struct {
	// Patience is how long a call keeps trying while no daemon can be reached, as during its restart. A call that only
	// reads is also repeated when its answer was lost; one that asks for something is sent once, when a connection
	// stands. Where the socket's directory is missing or closed to us, or another host refuses us, nothing is waited for. The time that
	// the first connection to another host takes does not count. 0: calls fail at once. Waits and Events have rules of their own.
	Patience time.Duration
	// OnAway is called when a call has waited for a daemon for a second; nil: never. It must be safe for concurrent use.
	OnAway func()
	// TLS is for a tcp:// host, which requires a client certificate; see TLSFromFiles. The version is 1.3 or higher. An empty ServerName
	// is the host's.
	TLS *tls.Config
	// NoPrompt makes ssh fail where it would ask a question on the terminal.
	NoPrompt bool
}

// Dial prepares a client for a host, which is one of
//
//	/run/agbox/agboxd.sock or unix:///run/agbox/agboxd.sock   a Unix socket
//	ssh://user@example.com:22/run/agbox/agboxd.sock           "agboxd dial-stdio" there, through the program ssh; only the name is required
//	tcp://example.com:9479                                    mutual TLS, see Options.TLS
//
// It does no I/O: the first call tells whether a daemon answers. Errors: the host has none of these forms.
//
// Each connection over ssh is one process, which Close ends and waits for. It uses the user's own configuration and agent, and asks for
// passphrases on the terminal. A connection that broke is made again, with a new process, when it is needed.
func Dial(host string) (*Client, error) { return DialWith(host, Options{}) }

// DialWith is Dial with options.
func DialWith(host string, o Options) (*Client, error) {
	way, err := viaHost(host, o)
	if err != nil {
		return nil, err
	}
	// Not the "unix:" scheme: it reads the path as part of a URL, and a path may hold a "%" or a "?".
	conn, err := grpc.NewClient("passthrough:///agboxd", append(way.options(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return way.dial(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // dial encrypts what leaves this host
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
		grpc.WithStaticStreamWindowSize(agboxv1.StreamWindow), grpc.WithStaticConnWindowSize(agboxv1.ConnWindow), grpc.WithReadBufferSize(agboxv1.IOBuffer), grpc.WithWriteBufferSize(agboxv1.IOBuffer),
	)...)
	if err != nil {
		return nil, err
	}
	c := New(conn)
	c.via, c.conn = way, conn
	c.close = func() error {
		err := conn.Close()
		way.close()
		return err
	}
	c.patience, c.onAway = o.Patience, o.OnAway
	return c, nil
}

// New returns a client on a connection that stays the caller's. Its calls declare the contract of this module, see agboxv1.Declare.
func New(conn grpc.ClientConnInterface) *Client {
	conn = agboxv1.Declare(conn)
	return &Client{
		sandboxes: agboxv1.NewSandboxServiceClient(conn),
		agents:    agboxv1.NewAgentServiceClient(conn),
		admin:     agboxv1.NewAdminServiceClient(conn),
		streams:   agboxv1.NewStreamServiceClient(conn),
		files:     agboxv1.NewFileServiceClient(conn),
		gateways:  agboxv1.NewGatewayServiceClient(conn),
		templates: agboxv1.NewTemplateServiceClient(conn),
		close:     func() error { return nil },
	}
}

// Close ends the connection if Dial made it. Calls that are under way fail.
func (c *Client) Close() error { return c.close() }

// EnvHost names the environment variable that overrides DefaultSocket.
const EnvHost = "AGBOX_HOST"

// systemSocket is the socket of the system service.
const systemSocket = "/run/agbox/agboxd.sock"

// DefaultSocket returns the host for Dial: $AGBOX_HOST if set; else the socket of this user's own daemon, by the daemon's rules (below
// $XDG_RUNTIME_DIR; without that, /run/agbox for root and the data directory's "run" for others). If there is no such socket, it is that of the
// system service, where its directory exists.
func DefaultSocket() string {
	if host := os.Getenv(EnvHost); host != "" {
		return SocketPath(host)
	}
	return LocalSocket()
}

// LocalSocket is DefaultSocket without the environment variable.
func LocalSocket() string { return existing(ownSocket(), systemSocket) }

// existing returns own, or system if only the directory of system exists: a service that restarts has no socket for a moment.
func existing(own, system string) string {
	if there(own) || !there(filepath.Dir(system)) {
		return own
	}
	return system
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func ownSocket() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "agbox", "agboxd.sock")
	}
	if os.Geteuid() == 0 {
		return systemSocket
	}
	return filepath.Join(dataDir(), "run", "agboxd.sock")
}

// SocketPath returns the path in host, which is a path or "unix://" and a path.
func SocketPath(host string) string { return strings.TrimPrefix(host, "unix://") }

func dataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "agents-sandbox")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/" // no daemon of this user can have started either; the path shows in the error
	}
	return filepath.Join(home, ".local", "share", "agents-sandbox")
}
