package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/agbox/agbox/client"
)

// maxBody bounds the body of a request of the control plane, in bytes. A spec has at most 1 MiB.
const maxBody = 2 << 20

// bodyTimeout bounds how long a client may take to send it.
const bodyTimeout = 30 * time.Second

// failure is an answer that is an error. Clients read the code from the body.
type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Error implements error.
func (f *failure) Error() string { return f.Message }

func failf(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

func notFound(id string) error { return failf(http.StatusNotFound, "sandbox %s was not found", id) }

func unsupported(what string) error {
	return failf(http.StatusNotImplemented, "%s is not supported by agbox", what)
}

// failureOf maps an error of the daemon's API.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	code := http.StatusInternalServerError
	switch client.Code(err) {
	case codes.NotFound:
		code = http.StatusNotFound
	case codes.InvalidArgument, codes.OutOfRange:
		code = http.StatusBadRequest
	case codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted:
		code = http.StatusConflict
	case codes.PermissionDenied:
		code = http.StatusForbidden
	case codes.ResourceExhausted:
		code = http.StatusTooManyRequests
	case codes.Unavailable, codes.DeadlineExceeded:
		code = http.StatusServiceUnavailable
	}
	if errors.Is(err, context.Canceled) {
		code = 499 // the client has gone
	}
	return &failure{code, err.Error()}
}

func fail(w http.ResponseWriter, err error) {
	f := failureOf(err)
	answer(w, f.Code, f)
}

// answer writes a body as JSON; nil: none.
func answer(w http.ResponseWriter, code int, body any) {
	if body == nil {
		w.WriteHeader(code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}

// decode reads the body of a request into v. A field that v lacks is refused unless it asks for nothing, so that nothing is
// ignored silently. An empty body is an empty object. Errors: 400, 413, 501.
func decode(w http.ResponseWriter, r *http.Request, v any, known ...string) error {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // the handler of a test has none
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = control.SetReadDeadline(time.Time{})
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return failf(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", maxBody)
	}
	if err != nil {
		return failf(http.StatusBadRequest, "read the body: %v", err)
	}
	if len(data) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return failf(http.StatusBadRequest, "the body is not a JSON object: %v", err)
	}
	for name, value := range fields {
		if !slices.Contains(known, name) && !isNothing(value) {
			return unsupported("the field " + name)
		}
	}
	if err := json.Unmarshal(data, v); err != nil {
		return failf(http.StatusBadRequest, "the body does not decode: %v", err)
	}
	return nil
}

// isNothing reports whether a value asks for nothing.
func isNothing(value json.RawMessage) bool {
	return slices.Contains([]string{"null", "false", "{}", "[]", `""`, "0"}, string(value))
}
