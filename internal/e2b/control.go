package e2b

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

const (
	// defaultTimeout is that of a create or connect that names none.
	defaultTimeout = 300 * time.Second
	// longestTimeout is 10 years, as in a spec.
	longestTimeout = 3650 * 24 * time.Hour
	// undoTimeout bounds the request to delete a sandbox whose client has gone. If it fails, the sandbox's deadline deletes it.
	undoTimeout = 20 * time.Second

	onTimeoutPause  = "pause"
	onTimeoutDelete = "delete"

	// publicTrafficField is the field of a network that says whether requests to ports need a token.
	publicTrafficField = "allowPublicTraffic"
)

// routes registers the control plane.
func (g *Gateway) routes() {
	for pattern, handle := range map[string]func(w http.ResponseWriter, r *http.Request, owner string) error{
		"POST /sandboxes":                           g.create,
		"POST /v2/sandboxes":                        g.create,
		"GET /sandboxes":                            g.listRunning,
		"GET /v2/sandboxes":                         g.list,
		"GET /sandboxes/metrics":                    g.allMetrics,
		"GET /sandboxes/{id}":                       g.info,
		"DELETE /sandboxes/{id}":                    g.kill,
		"POST /sandboxes/{id}/connect":              g.connect,
		"POST /v2/sandboxes/{id}/connect":           g.connect,
		"POST /sandboxes/{id}/resume":               g.connect,
		"POST /sandboxes/{id}/timeout":              g.setTimeout,
		"POST /sandboxes/{id}/refreshes":            g.refresh,
		"POST /sandboxes/{id}/pause":                g.pause,
		"PUT /sandboxes/{id}/network":               g.setNetwork,
		"GET /sandboxes/{id}/metrics":               g.metrics,
		"GET /sandboxes/{id}/logs":                  g.logs,
		"GET /v2/sandboxes/{id}/logs":               g.logsV2,
		"POST /sandboxes/{id}/snapshots":            g.createSnapshot,
		"POST /sandboxes/{id}/fork":                 refuse("a fork"),
		"GET /snapshots":                            g.listSnapshots,
		"POST /v3/templates":                        g.createTemplate,
		"POST /v2/templates":                        refuse("a template build of this version"),
		"POST /templates":                           refuse("a template build of this version"),
		"GET /templates/{id}/files/{hash}":          g.fileUpload,
		"POST /v2/templates/{id}/builds/{build}":    g.startBuild,
		"GET /templates/{id}/builds/{build}/status": g.buildStatus,
		"GET /templates/{id}/builds/{build}/logs":   g.buildLogs,
		"DELETE /templates/{id}":                    g.removeTemplate,
		"GET /templates/{id}":                       refuse("a list of the builds of a template"),
		"PATCH /templates/{id}":                     refuse("a public template"),
		"PATCH /v2/templates/{id}":                  refuse("a public template"),
		"GET /templates":                            g.listTemplates,
		"GET /v2/templates":                         g.listTemplates,
		"GET /templates/{id}/{name}":                g.aliasOrTags,
		"POST /templates/tags":                      refuse("a template tag"),
		"DELETE /templates/tags":                    refuse("a template tag"),
	} {
		g.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			owner, err := g.owner(r)
			if err == nil {
				err = handle(w, r, owner)
			}
			if err != nil {
				fail(w, err)
			}
		})
	}
	g.mux.HandleFunc("PUT /templates/{id}/files/{hash}", func(w http.ResponseWriter, r *http.Request) {
		if err := g.upload(w, r); err != nil {
			fail(w, err)
		}
	})
	g.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, failf(http.StatusNotFound, "there is no route %s %s", r.Method, r.URL.Path))
	})
}

func refuse(what string) func(http.ResponseWriter, *http.Request, string) error {
	return func(http.ResponseWriter, *http.Request, string) error { return unsupported(what) }
}

// newSandbox is the body of a create.
type newSandbox struct {
	TemplateID     string            `json:"templateID"`
	Timeout        *int64            `json:"timeout"`
	Metadata       map[string]string `json:"metadata"`
	EnvVars        map[string]string `json:"envVars"`
	AutoPause      bool              `json:"autoPause"`
	AutoResume     *enabled          `json:"autoResume"`
	Lifecycle      *lifecycle        `json:"lifecycle"`
	InternetAccess *bool             `json:"allow_internet_access"`

	Network map[string]json.RawMessage `json:"network"`
}

// newSandboxFields are the fields of a create that have an effect. "secure" has one: whatever it says, a token is needed.
var newSandboxFields = []string{
	"templateID", "timeout", "metadata", "envVars", "autoPause", "autoResume", "lifecycle", "allow_internet_access", "network", "secure",
}

// enabled is written as a boolean or as {"enabled": true}.
type enabled bool

// UnmarshalJSON implements json.Unmarshaler.
func (e *enabled) UnmarshalJSON(data []byte) error {
	var object struct{ Enabled bool }
	if err := json.Unmarshal(data, (*bool)(e)); err == nil {
		return nil
	}
	err := json.Unmarshal(data, &object)
	*e = enabled(object.Enabled)
	return err
}

type lifecycle struct {
	OnTimeout  string  `json:"onTimeout"`
	AutoResume enabled `json:"autoResume"`
}

// spec returns the spec of a new sandbox, without its image. Errors: 400, 501.
func (n newSandbox) spec(owner string) (*agboxv1.CreateSpec, error) {
	timeout, err := timeoutOf(n.Timeout)
	if err != nil {
		return nil, err
	}
	if timeout == 0 {
		return nil, failf(http.StatusBadRequest, "timeout: 0 ends the sandbox at once; write 1 or more seconds")
	}
	out, public, err := parseNetwork(n.Network)
	if err != nil {
		return nil, err
	}
	out.InternetAccess = n.InternetAccess
	policy, err := out.policy()
	if err != nil {
		return nil, err
	}
	spec := &agboxv1.CreateSpec{
		Envs: n.EnvVars, IdleTtl: durationpb.New(0), Timeout: durationpb.New(timeout), OnTimeout: onTimeoutDelete,
		DefaultUser: user, WorkingDir: home, KeepStopped: true, Entrypoint: "skip", Network: policy,
		Gateway: &agboxv1.GatewaySpec{Owner: owner, Template: cmp.Or(n.TemplateID, DefaultTemplate), Metadata: n.Metadata, PrivateTraffic: !public},
	}
	if n.AutoResume != nil {
		spec.AutoResume = bool(*n.AutoResume)
	}
	pauses := n.AutoPause
	if n.Lifecycle != nil {
		spec.AutoResume = spec.AutoResume || bool(n.Lifecycle.AutoResume)
		switch n.Lifecycle.OnTimeout {
		case "", "kill":
		case "pause":
			pauses = true
		default:
			return nil, failf(http.StatusBadRequest, `lifecycle.onTimeout: %q is unknown; write "kill" or "pause"`, n.Lifecycle.OnTimeout)
		}
	}
	if pauses {
		spec.OnTimeout = onTimeoutPause
	}
	return spec, nil
}

// timeoutOf returns a timeout in a body, in seconds. Errors: 400.
func timeoutOf(seconds *int64) (time.Duration, error) {
	if seconds == nil {
		return defaultTimeout, nil
	}
	if *seconds < 0 || *seconds > int64(longestTimeout/time.Second) {
		return 0, failf(http.StatusBadRequest, "timeout: %d is out of range; write 0 to %d seconds", *seconds, int64(longestTimeout/time.Second))
	}
	return time.Duration(*seconds) * time.Second, nil
}

// create makes a sandbox and waits until it runs. If the client leaves before, the sandbox is deleted. If the daemon dies before, the
// sandbox has its deadline.
func (g *Gateway) create(w http.ResponseWriter, r *http.Request, owner string) error {
	var body newSandbox
	if err := decode(w, r, &body, newSandboxFields...); err != nil {
		return err
	}
	spec, err := body.spec(owner)
	if err != nil {
		return err
	}
	from, err := g.baseOf(r.Context(), owner, spec.GetGateway().GetTemplate())
	if err != nil {
		return err
	}
	from.apply(spec)
	id := strings.ToLower(rand.Text())
	// A call that ends with its client could be carried out after undo.
	_, err = g.api.CreateSandbox(context.WithoutCancel(r.Context()), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: spec})
	var sb *agboxv1.SandboxHandle
	if err == nil {
		sb, err = g.api.WaitSandbox(r.Context(), id, client.Ready)
	}
	if err == nil {
		err = g.awaitReady(r.Context(), id, from.settings.GetReadyCommand())
	}
	var resp *connection
	if err == nil {
		resp, err = g.connection(r.Context(), sb)
	}
	if err == nil {
		err = r.Context().Err() // the client has gone
	}
	if err != nil {
		g.undo(r.Context(), id)
		if failed, ok := errors.AsType[*client.FailedError](err); ok {
			return failf(http.StatusInternalServerError, "the sandbox could not be created from template %s: %s", spec.GetGateway().GetTemplate(), failed.Sandbox.GetErrorMessage())
		}
		return err
	}
	answer(w, http.StatusCreated, resp)
	return nil
}

// undo deletes a sandbox that no client knows. It also does so if the answer to its create was lost.
func (g *Gateway) undo(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := g.api.DeleteSandbox(ctx, id); err != nil && !client.IsNotFound(err) {
		g.Log.Warn("a sandbox whose create failed is not deleted before its deadline", "sandbox_id", id, "err", err)
	}
}

// connection is the answer to create and connect.
type connection struct {
	SandboxID          string  `json:"sandboxID"`
	TemplateID         string  `json:"templateID"`
	Alias              string  `json:"alias"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             string  `json:"domain"`
}

func (g *Gateway) connection(ctx context.Context, sb *agboxv1.SandboxHandle) (*connection, error) {
	token, err := g.token(ctx, sb.GetSandboxId())
	if err != nil {
		return nil, err
	}
	traffic, err := g.trafficToken(ctx, sb)
	if err != nil {
		return nil, err
	}
	template := sb.GetSpec().GetGateway().GetTemplate()
	resp := &connection{
		SandboxID: sb.GetSandboxId(), TemplateID: template, Alias: template, ClientID: clientID, EnvdVersion: envdVersion,
		EnvdAccessToken: token, Domain: g.Domain,
	}
	if traffic != "" {
		resp.TrafficAccessToken = &traffic
	}
	return resp, nil
}

// connect makes a sandbox run for at least the timeout. It answers 200 if it ran already, else 201.
func (g *Gateway) connect(w http.ResponseWriter, r *http.Request, owner string) error {
	var body struct {
		Timeout *int64 `json:"timeout"`
		Memory  *bool  `json:"memory"`
	}
	if err := decode(w, r, &body, "timeout", "memory", "autoPause"); err != nil {
		return err
	}
	timeout, err := timeoutOf(body.Timeout)
	if err != nil {
		return err
	}
	if timeout == 0 {
		return failf(http.StatusBadRequest, "timeout: 0 ends the sandbox at once; write 1 or more seconds")
	}
	id := r.PathValue("id")
	ran, err := g.resume(r.Context(), owner, id, timeout, body.Memory != nil && !*body.Memory)
	if err != nil {
		return err
	}
	sb, err := g.ready(r.Context(), id)
	if err != nil {
		return err
	}
	resp, err := g.connection(r.Context(), sb)
	if err != nil {
		return err
	}
	code := http.StatusCreated
	if ran {
		code = http.StatusOK
	}
	answer(w, code, resp)
	return nil
}

// ready waits until a sandbox runs. Errors: 404 if it ended instead.
func (g *Gateway) ready(ctx context.Context, id string) (*agboxv1.SandboxHandle, error) {
	sb, err := g.api.WaitSandbox(ctx, id, client.Ready)
	if failed, ok := errors.AsType[*client.FailedError](err); ok {
		return nil, failf(http.StatusNotFound, "sandbox %s does not run any more: %v", id, failed)
	}
	return sb, err
}

// resume asks for a sandbox to run, for at least the timeout from now; ran: it did already. cold: a frozen one starts without its memory.
// Concurrent calls for a sandbox wait for each other, so that each sees what the one before asked for.
func (g *Gateway) resume(ctx context.Context, owner, id string, timeout time.Duration, cold bool) (ran bool, err error) {
	release, err := g.resuming.take(ctx, id)
	if err != nil {
		return false, err
	}
	defer release()
	sb, err := g.sandbox(ctx, owner, id)
	if err != nil {
		return false, err
	}
	for {
		switch stateOf(sb) {
		case starting, running:
			// A sandbox whose deadline has just passed is on its way to another state.
			_, _, err := g.api.SetSandboxTimeout(ctx, id, client.Timeout{After: timeout, OnlyExtend: true})
			if !client.IsFailedPrecondition(err) {
				return stateOf(sb) == running, err
			}
		case frozen:
			if cold {
				if err := g.api.StopSandbox(ctx, id); err != nil && !client.IsFailedPrecondition(err) {
					return false, err
				}
				break
			}
			// The deadline first: while it is paused it has no effect, so a crash between the two calls changes nothing.
			if _, _, err = g.api.SetSandboxTimeout(ctx, id, client.Timeout{After: timeout}); err == nil {
				err = g.api.ResumeSandbox(ctx, id)
			}
			if !client.IsFailedPrecondition(err) {
				return false, err
			}
		case stopping:
			if _, err := g.api.WaitSandbox(ctx, id, client.Stopped); err != nil {
				return false, failedAs(id, err)
			}
		case stopped:
			if err = g.api.ResumeSandbox(ctx, id); err == nil {
				_, _, err = g.api.SetSandboxTimeout(ctx, id, client.Timeout{After: timeout})
			}
			if !client.IsFailedPrecondition(err) {
				return false, err
			}
		}
		// Something else changed it, and recorded what it is now.
		before := sb
		if sb, err = g.sandbox(ctx, owner, id); err != nil {
			return false, err
		}
		if sb.GetLastEventSequence() == before.GetLastEventSequence() {
			return false, failf(http.StatusConflict, "sandbox %s can't be resumed now: %s", id, sb.GetStatusMessage())
		}
	}
}

// failedAs makes a wait that can't succeed a 404.
func failedAs(id string, err error) error {
	if _, ok := errors.AsType[*client.FailedError](err); ok {
		return notFound(id)
	}
	return err
}

// setTimeout sets the deadline; 0 ends the sandbox now, by its own action. Clients see a stopped sandbox as a paused one: it has no deadline before
// the connect or the traffic that starts it again sets one.
func (g *Gateway) setTimeout(w http.ResponseWriter, r *http.Request, owner string) error {
	var body struct {
		Timeout *int64 `json:"timeout"`
	}
	if err := decode(w, r, &body, "timeout"); err != nil {
		return err
	}
	if body.Timeout == nil {
		return failf(http.StatusBadRequest, "timeout is required")
	}
	timeout, err := timeoutOf(body.Timeout)
	if err != nil {
		return err
	}
	sb, err := g.sandbox(r.Context(), owner, r.PathValue("id"))
	if err != nil {
		return err
	}
	switch state := stateOf(sb); {
	case timeout > 0 && (state == stopping || state == stopped):
	case timeout > 0:
		_, _, err = g.api.SetSandboxTimeout(r.Context(), sb.GetSandboxId(), client.Timeout{After: timeout})
	case sb.GetSpec().GetOnTimeout() != onTimeoutPause:
		err = g.api.DeleteSandbox(r.Context(), sb.GetSandboxId())
	case state == starting, state == running:
		err = g.freeze(r.Context(), sb.GetSandboxId())
	}
	if err == nil {
		answer(w, http.StatusNoContent, nil)
	}
	return err
}

// refresh keeps a running sandbox for at least a duration from now.
func (g *Gateway) refresh(w http.ResponseWriter, r *http.Request, owner string) error {
	var body struct {
		Duration *int64 `json:"duration"`
	}
	if err := decode(w, r, &body, "duration"); err != nil {
		return err
	}
	duration, err := timeoutOf(body.Duration)
	if err != nil {
		return err
	}
	sb, err := g.sandbox(r.Context(), owner, r.PathValue("id"))
	if err != nil {
		return err
	}
	if duration > 0 {
		_, _, err = g.api.SetSandboxTimeout(r.Context(), sb.GetSandboxId(), client.Timeout{After: duration, OnlyExtend: true})
	}
	if err == nil {
		answer(w, http.StatusNoContent, nil)
	}
	return err
}

// pause freezes a sandbox, or without its memory stops it, and waits until that is done. If the client leaves, it is done all the same.
func (g *Gateway) pause(w http.ResponseWriter, r *http.Request, owner string) error {
	var body struct {
		Memory *bool `json:"memory"`
	}
	if err := decode(w, r, &body, "memory"); err != nil {
		return err
	}
	sb, err := g.sandbox(r.Context(), owner, r.PathValue("id"))
	if err != nil {
		return err
	}
	id := sb.GetSandboxId()
	switch stateOf(sb) {
	case frozen, stopped, stopping:
		if sb.GetDesiredState() != "paused" { // otherwise another call has asked for it
			return failf(http.StatusConflict, "sandbox %s is paused already", id)
		}
	case starting:
		if _, err := g.ready(r.Context(), id); err != nil {
			return err
		}
	}
	if body.Memory != nil && !*body.Memory {
		if err = g.api.StopSandbox(r.Context(), id); err == nil {
			_, err = g.api.WaitSandbox(r.Context(), id, client.Stopped)
		}
	} else {
		err = g.freeze(r.Context(), id)
	}
	if err != nil {
		return failedAs(id, err)
	}
	answer(w, http.StatusNoContent, nil)
	return nil
}

// freeze pauses a sandbox with its memory. Errors: 429 where that would make the daemon stop another frozen one.
func (g *Gateway) freeze(ctx context.Context, id string) error {
	release, err := g.resuming.take(ctx, "") // one at a time: each counts those before it
	if err != nil {
		return err
	}
	err = g.roomToFreeze(ctx, id)
	if err == nil {
		err = g.api.PauseSandbox(ctx, id)
	}
	release()
	if err == nil {
		_, err = g.api.WaitSandbox(ctx, id, client.Paused)
	}
	return err
}

func (g *Gateway) roomToFreeze(ctx context.Context, id string) error {
	most := g.MaxFrozen()
	if most == 0 {
		return nil
	}
	all, err := g.api.ListSandboxes(ctx, false, nil)
	if err != nil {
		return err
	}
	n := 0
	for _, sb := range all {
		pausing := sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && sb.GetDemotedAt() == nil || sb.GetDesiredState() == "paused"
		if pausing && sb.GetSandboxId() != id {
			n++
		}
	}
	if n >= most {
		return failf(http.StatusTooManyRequests, "%d sandboxes are frozen, as many as pause.max_frozen allows; pause without memory, resume or kill one, or raise it", n)
	}
	return nil
}

// kill deletes a sandbox. It returns once that is recorded.
func (g *Gateway) kill(w http.ResponseWriter, r *http.Request, owner string) error {
	sb, err := g.api.GetSandbox(r.Context(), r.PathValue("id"))
	switch {
	case client.IsNotFound(err), err == nil && (sb.GetSpec().GetGateway().GetOwner() != owner || isDeleted(sb)):
		return notFound(r.PathValue("id"))
	case err != nil:
		return err
	}
	if err := g.api.DeleteSandbox(r.Context(), sb.GetSandboxId()); err != nil {
		return err
	}
	answer(w, http.StatusNoContent, nil)
	return nil
}

// state is what a sandbox is for this API.
type state int

const (
	gone     state = iota // deleted, or failed
	starting              // created or resumed, not running yet
	running
	frozen // paused, or about to be
	stopping
	stopped
)

func stateOf(sb *agboxv1.SandboxHandle) state {
	switch sb.GetState() {
	case agboxv1.SandboxState_SANDBOX_STATE_PENDING:
		return starting
	case agboxv1.SandboxState_SANDBOX_STATE_READY, agboxv1.SandboxState_SANDBOX_STATE_PAUSED:
		switch {
		case sb.GetDesiredState() == "deleted":
			return gone
		case sb.GetDesiredState() == "stopped":
			return stopping
		case sb.GetDesiredState() == "paused", sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_PAUSED:
			return frozen
		}
		return running
	case agboxv1.SandboxState_SANDBOX_STATE_STOPPED:
		return stopped
	}
	return gone
}

func isGone(sb *agboxv1.SandboxHandle) bool { return stateOf(sb) == gone }

// isDeleted reports whether a delete was requested. A FAILED sandbox can still be killed.
func isDeleted(sb *agboxv1.SandboxHandle) bool {
	return isGone(sb) && sb.GetState() != agboxv1.SandboxState_SANDBOX_STATE_FAILED
}
