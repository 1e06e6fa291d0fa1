package server

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agbox/agbox/store"
)

// callers are credentials that record who is at the other end of a connection. They encrypt nothing: connections over a network are encrypted,
// and their clients known, before gRPC sees them.
type callers struct{}

// caller names who called: "uid:1000" at the socket, "tls:NAME" of a client with a certificate; "" if it is not known.
type caller string

// connection is one connection of a caller.
type connection struct {
	caller
	streams atomic.Int64 // that are open
}

// AuthType implements credentials.AuthInfo.
func (*connection) AuthType() string { return "caller" }

// ServerHandshake implements credentials.TransportCredentials.
func (callers) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, &connection{caller: callerOf(conn)}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (callers) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are those of a server")
}

// Info implements credentials.TransportCredentials.
func (callers) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "caller"}
}

// Clone implements credentials.TransportCredentials.
func (c callers) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials.
func (callers) OverrideServerName(string) error { return nil }

// connectionOf returns the connection of a call.
func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := p.AuthInfo.(*connection); ok {
			return c
		}
	}
	return &connection{} // the call did not come through gRPC
}

// callerIn returns for whom what a call creates counts. Gateways are clients of the daemon's own user.
func callerIn(ctx context.Context, limit int) store.Caller {
	who := connectionOf(ctx).caller
	return store.Caller{Name: string(who), Gateway: who == ownUser, Limit: limit}
}

var ownUser = caller("uid:" + strconv.Itoa(os.Geteuid()))

func callerOf(conn net.Conn) caller {
	switch c := conn.(type) {
	case interface{ ClientName() string }:
		return caller("tls:" + c.ClientName())
	case *net.UnixConn:
		return caller(userOf(c))
	case interface{ NetConn() net.Conn }:
		return callerOf(c.NetConn())
	}
	return ""
}

// userOf returns the user of the process at the other end, as the kernel knows it.
func userOf(c *net.UnixConn) (user string) {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			user = "uid:" + strconv.FormatUint(uint64(cred.Uid), 10)
		}
	})
	return user
}

// reading are the starts of the names of RPCs that change nothing and are not recorded.
var reading = []string{"Get", "List", "Subscribe", "Ping", "Explain", "Doctor", "Read", "Stream", "Stat", "Watch"}

// recorded reports whether requests of a method are recorded.
func recorded(fullMethod string) bool {
	return !slices.ContainsFunc(reading, func(start string) bool { return strings.HasPrefix(nameOf(fullMethod), start) })
}

func nameOf(fullMethod string) string { return fullMethod[strings.LastIndex(fullMethod, "/")+1:] }

// audit writes the line of a request that may change something: who made it, to which object, and the answer.
func (s *Server) audit(ctx context.Context, fullMethod string, req any, begun time.Time, err error) {
	if !recorded(fullMethod) {
		return
	}
	who := connectionOf(ctx).caller
	attrs := []any{"request", nameOf(fullMethod), "caller", string(who), "result", status.Code(err).String(), "took_ms", time.Since(begun).Milliseconds()}
	if m, ok := req.(proto.Message); ok {
		if isDryRun(m.ProtoReflect()) {
			return
		}
		attrs = append(attrs, objectsOf(m.ProtoReflect())...)
	}
	s.deps.Logger.Info("audit", attrs...)
}

func isDryRun(m protoreflect.Message) bool {
	fd := m.Descriptor().Fields().ByName("dry_run")
	return fd != nil && fd.Kind() == protoreflect.BoolKind && m.Get(fd).Bool()
}

// objectFields are the fields of requests that name objects.
var objectFields = []protoreflect.Name{"sandbox_id", "exec_id", "agent_id", "name", "sandbox_name", "volume_name"}

// maxObject bounds the bytes of a name in a line of the log: that of an invalid request may have megabytes.
const maxObject = 128

func objectsOf(m protoreflect.Message) (attrs []any) {
	for _, name := range objectFields {
		fd := m.Descriptor().Fields().ByName(name)
		if fd == nil || fd.Kind() != protoreflect.StringKind || fd.IsList() {
			continue
		}
		if value := m.Get(fd).String(); value != "" {
			attrs = append(attrs, string(name), value[:min(len(value), maxObject)])
		}
	}
	return attrs
}
