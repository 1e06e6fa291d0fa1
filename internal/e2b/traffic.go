package e2b

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

const (
	// envdPort is the port of a sandbox's files and processes.
	envdPort = 49983
	// wakeTimeout bounds how long a request waits for a sandbox that is started or resumed.
	wakeTimeout = 60 * time.Second
	// drainTimeout bounds how long the rest of a request is read after its answer.
	drainTimeout = 5 * time.Second
)

// hostPattern is a host name of a port: PORT-ID.domain or PORT-ID-anything.domain.
var hostPattern = regexp.MustCompile(`^([0-9]{1,5})-([a-z0-9]+)(?:-[a-z0-9-]*)?\.`)

// address is the sandbox and the port that a request is for.
type address struct {
	id   string
	port int
}

// addressOf reads an address from the headers of a request, or else from its host name. ok: there is one. Errors: 400.
func addressOf(r *http.Request) (a address, ok bool, err error) {
	id, port := r.Header.Get("E2b-Sandbox-Id"), r.Header.Get("E2b-Sandbox-Port")
	if id == "" {
		m := hostPattern.FindStringSubmatch(r.Host)
		if m == nil {
			return a, false, nil
		}
		id, port = m[2], m[1]
	}
	a = address{id, envdPort}
	if port != "" {
		if a.port, err = strconv.Atoi(port); err != nil || a.port < 1 || a.port > 65535 {
			return a, true, failf(http.StatusBadRequest, "%q is not a port", port)
		}
	}
	return a, true, nil
}

// target is the sandbox of a request and the user that it runs as.
type target struct {
	id string
	// user is empty for the sandbox's own user, which own names unless it is the default one.
	user, own string
}

type targetKey struct{}

func targetOf(ctx context.Context) target {
	t, _ := ctx.Value(targetKey{}).(target)
	return t
}

// traffic serves a request for a sandbox.
func (g *Gateway) traffic(w http.ResponseWriter, r *http.Request, a address) {
	sb, err := g.api.GetSandbox(r.Context(), a.id)
	if client.IsNotFound(err) || err == nil && (sb.GetSpec().GetGateway() == nil || isGone(sb)) {
		unreachable(w, a.id, "the sandbox was not found")
		return
	}
	if err != nil {
		unreachable(w, a.id, err.Error())
		return
	}
	if a.port != envdPort {
		g.servePort(w, r, a, sb)
		return
	}
	if r.URL.Path == "/health" {
		if s := stateOf(sb); s != running && s != starting {
			unreachable(w, a.id, "the sandbox is paused")
			return
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	token, err := g.token(r.Context(), a.id)
	if err != nil {
		unreachable(w, a.id, err.Error())
		return
	}
	if !isAllowed(r, token) {
		answer(w, http.StatusUnauthorized, map[string]any{
			"code": "unauthenticated", "message": "the header X-Access-Token is not the token of the sandbox, and the URL has no valid signature",
		})
		return
	}
	if err := g.wake(r.Context(), sb); err != nil {
		unreachable(w, a.id, err.Error())
		return
	}
	name := ""
	if hasToken(r, token) { // a signature is for the user in the URL
		name, _, _ = r.BasicAuth()
	}
	own := sb.GetSpec().GetUser()
	ctx := context.WithValue(r.Context(), targetKey{}, target{id: a.id, user: userOf(name, own), own: own})
	if r.ProtoMajor == 1 && r.URL.Path != "/files" {
		defer fullDuplex(w, r)()
	}
	g.envd.ServeHTTP(w, r.WithContext(ctx))
}

// fullDuplex lets an answer start before the request has ended; otherwise the server may cut it off: golang/go#40747. The server then does not
// read the rest of a body that the handler has left, which the returned function does.
func fullDuplex(w http.ResponseWriter, r *http.Request) (done func()) {
	control := http.NewResponseController(w)
	if control.EnableFullDuplex() != nil {
		return func() {}
	}
	return func() {
		_ = control.SetReadDeadline(time.Now().Add(drainTimeout))
		_, _ = io.CopyN(io.Discard, r.Body, maxMessage)
		_ = control.SetReadDeadline(time.Time{})
	}
}

// userOf returns a user of the daemon's API; empty for the sandbox's own, which own is unless it is the default one.
func userOf(name, own string) string {
	if name == user && own == "" {
		return ""
	}
	return name
}

// wake returns once the sandbox runs. It resumes one that has auto_resume. Errors: it does not run.
func (g *Gateway) wake(ctx context.Context, sb *agboxv1.SandboxHandle) error {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	switch stateOf(sb) {
	case running:
		return nil
	case starting:
	default:
		spec := sb.GetSpec()
		if !spec.GetAutoResume() {
			return errors.New("the sandbox is paused")
		}
		if _, err := g.resume(ctx, spec.GetGateway().GetOwner(), sb.GetSandboxId(), spec.GetTimeout().AsDuration(), false); err != nil {
			return err
		}
	}
	_, err := g.ready(ctx, sb.GetSandboxId())
	return err
}

// unreachable is the answer from which SDKs see that a sandbox does not run.
func unreachable(w http.ResponseWriter, id, message string) {
	answer(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": message, "code": http.StatusBadGateway})
}

// envdRoutes registers what the sandbox's own port serves.
func (g *Gateway) envdRoutes() {
	g.envd.HandleFunc("GET /files", g.readFile)
	g.envd.HandleFunc("POST /files", g.writeFiles)
	g.processRoutes()
	g.filesystemRoutes()
}

// unary and streaming register handlers of Connect.
func unary[Req, Resp any](g *Gateway, procedure string, handle func(context.Context, target, *Req) (*Resp, error)) {
	g.envd.Handle(procedure, connect.NewUnaryHandler(procedure, func(ctx context.Context, req *connect.Request[Req]) (*connect.Response[Resp], error) {
		resp, err := handle(ctx, targetOf(ctx), req.Msg)
		if err != nil {
			return nil, connectError(err)
		}
		return connect.NewResponse(resp), nil
	}, connect.WithReadMaxBytes(maxMessage)))
}

func streaming[Req, Resp any](g *Gateway, procedure string, handle func(context.Context, target, *connect.Request[Req], *connect.ServerStream[Resp]) error) {
	g.envd.Handle(procedure, connect.NewServerStreamHandler(procedure, func(ctx context.Context, req *connect.Request[Req], stream *connect.ServerStream[Resp]) error {
		return connectError(handle(ctx, targetOf(ctx), req, stream))
	}, connect.WithReadMaxBytes(maxMessage)))
}

// maxMessage bounds a message of a client in bytes.
const maxMessage = 8 << 20

// connectError maps an error of the daemon's API.
func connectError(err error) error {
	if _, ok := errors.AsType[*connect.Error](err); ok || err == nil {
		return err
	}
	code := connect.CodeInternal
	switch client.Code(err) {
	case codes.NotFound:
		code = connect.CodeNotFound
	case codes.InvalidArgument, codes.OutOfRange:
		code = connect.CodeInvalidArgument
	case codes.AlreadyExists:
		code = connect.CodeAlreadyExists
	case codes.PermissionDenied:
		code = connect.CodePermissionDenied
	case codes.FailedPrecondition, codes.Aborted:
		code = connect.CodeFailedPrecondition
	case codes.ResourceExhausted:
		code = connect.CodeResourceExhausted
	case codes.Unavailable:
		code = connect.CodeUnavailable
	}
	switch {
	case client.Reason(err) == "USER_UNKNOWN":
		code = connect.CodeUnauthenticated
	case errors.Is(err, context.DeadlineExceeded), client.Code(err) == codes.DeadlineExceeded:
		code = connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled), client.Code(err) == codes.Canceled:
		code = connect.CodeCanceled
	}
	return connect.NewError(code, err)
}

// keepAlive calls send at the interval that the client asks for, until the returned function is called, which waits for it. Errors of send
// are those of the stream, which its other writer gets too.
func keepAlive(header http.Header, send func()) (stop func()) {
	interval := 50 * time.Second
	if n, err := strconv.Atoi(strings.TrimSpace(header.Get("Keepalive-Ping-Interval"))); err == nil && n > 0 && n <= 3600 {
		interval = time.Duration(n) * time.Second
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				send()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}
