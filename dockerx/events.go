package dockerx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/agbox/agbox/internal/fault"
)

// Values of Event.Type.
const (
	TypeContainer = "container"
	TypeNetwork   = "network"
)

// Values of Event.Action. A network has ActionDisconnect and ActionDestroy only.
const (
	ActionCreate  = "create"
	ActionStart   = "start"
	ActionDie     = "die"  // PID 1 exited; ExitCode is set
	ActionKill    = "kill" // a client had the engine send a signal; Signal is set
	ActionOOM     = "oom"  // the OOM killer killed some process of the container
	ActionPause   = "pause"
	ActionUnpause = "unpause"
	ActionDestroy = "destroy"
	// ActionHealth is a new verdict of a healthcheck; inspect the container to get it.
	ActionHealth = "health_status"
	// ActionDisconnect: a container left the network of the event, because a client disconnected it, it exited, or it could not
	// be started. The engine sends it before or after ActionDie, and up to twice.
	ActionDisconnect = "disconnect"
)

// subscribed are the events to send. The engine matches actions as prefixes; health_status carries its verdict:
// "health_status: healthy".
var subscribed = filters.NewArgs(
	filters.Arg("type", TypeContainer), filters.Arg("type", TypeNetwork),
	filters.Arg("event", ActionCreate), filters.Arg("event", ActionStart), filters.Arg("event", ActionDie),
	filters.Arg("event", ActionKill), filters.Arg("event", ActionOOM), filters.Arg("event", ActionPause),
	filters.Arg("event", ActionUnpause), filters.Arg("event", ActionDestroy), filters.Arg("event", ActionHealth),
	filters.Arg("event", ActionDisconnect),
)

// Event is one change that the engine reports: a hint to inspect the object, not its state. It may arrive twice.
type Event struct {
	Type, Action, ID string
	Labels           map[string]string
	ExitCode         int // of ActionDie
	Signal           int // of ActionKill
	Time             time.Time
}

// Events subscribes to events of containers and networks that have all the labels (an empty value matches the key alone),
// starting at since, and calls handle for each event, one at a time, in the engine's order. handle must not block for long.
// A zero since is the time of the call.
//
// ready is called once, when the engine has accepted the subscription: every later event will be handled. The engine
// keeps only its last 256 events and drops them when it restarts, so a caller that needs all changes lists after ready.
// Each healthcheck probe, of any container, uses three of those 256.
//
// Events blocks until the stream or ctx ends, and always returns an error: that of ctx, ErrUnavailable when the stream was
// lost, or the engine's refusal.
//
// The engine's network events carry no labels (20.10; later ones neither), and its label filter would drop them. So the
// stream is filtered here, with the labels that this Engine received when it created or listed the network; existing
// networks are listed once before ready. Events of a network that another client creates later are dropped until
// ListNetworks has returned it.
func (e *Engine) Events(ctx context.Context, since time.Time, labels map[string]string, ready func(), handle func(Event)) error {
	streamCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	if since.IsZero() {
		since = time.Now()
	}
	stream, err := e.subscribe(ctx, streamCtx, cancel, since)
	if err != nil {
		return fmt.Errorf("subscribe to events: %w", err)
	}
	if _, err := e.ListNetworks(ctx, labels); err != nil {
		return fmt.Errorf("subscribe to events: %w", err)
	}
	ready()
	if err := e.follow(stream, labels, handle); ctx.Err() == nil {
		return fmt.Errorf("event stream lost: %w: %w", errdefs.ErrUnavailable, err)
	}
	return fmt.Errorf("follow events: %w", ctx.Err())
}

// eventStream is an accepted subscription. errs has one error, at its end.
type eventStream struct {
	messages <-chan events.Message
	errs     <-chan error
}

// acceptedKey is the context key of an *atomic.Bool that is set when the engine accepts a request.
type acceptedKey struct{}

// subscribe sends the request, which lives as long as streamCtx, and waits for the engine to accept it. The engine sends
// the response header just before it subscribes; since closes that gap.
func (e *Engine) subscribe(ctx, streamCtx context.Context, cancel func(), since time.Time) (stream eventStream, err error) {
	start := time.Now()
	timer := time.AfterFunc(Deadline(OpEvents), cancel)
	err = fault.Around(fault.Engine, OpEvents, func() error {
		return e.withClient(streamCtx, func(streamCtx context.Context, c *client.Client) error {
			var accepted atomic.Bool
			from := fmt.Sprintf("%d.%09d", since.Unix(), since.Nanosecond())
			stream.messages, stream.errs = c.Events(context.WithValue(streamCtx, acceptedKey{}, &accepted), events.ListOptions{Since: from, Filters: subscribed})
			if accepted.Load() {
				return nil
			}
			return <-stream.errs
		})
	})
	if !timer.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	err = classify(ctx, Deadline(OpEvents), err)
	e.observed(OpEvents, start, err)
	return stream, err
}

// follow reads events until the stream ends.
func (e *Engine) follow(stream eventStream, labels map[string]string, handle func(Event)) error {
	for {
		select {
		case m := <-stream.messages:
			if ev, ok := e.eventOf(&m); ok && LabelsMatch(ev.Labels, labels) {
				handle(ev)
			}
		case err := <-stream.errs:
			return errors.New(err.Error()) // its class must not leak: a lost stream is ErrUnavailable
		}
	}
}

// eventOf converts m; false for an event that is not reported to callers.
func (e *Engine) eventOf(m *events.Message) (Event, bool) {
	action, _, _ := strings.Cut(string(m.Action), ":") // the verdict of a healthcheck
	ev := Event{Type: string(m.Type), Action: action, ID: m.Actor.ID, Time: time.Unix(0, m.TimeNano).UTC()}
	switch {
	case ev.Type == TypeContainer:
		ev.ExitCode, _ = strconv.Atoi(m.Actor.Attributes["exitCode"]) // absent unless it died
		ev.Signal, _ = strconv.Atoi(m.Actor.Attributes["signal"])     // absent unless it was killed
		ev.Labels = containerLabels(m.Actor.Attributes)
		return ev, true
	case ev.Type == TypeNetwork && (ev.Action == ActionDestroy || ev.Action == ActionDisconnect):
		var known bool
		ev.Labels, known = e.networks.labels(ev.ID)
		if ev.Action == ActionDestroy {
			e.networks.removed(ev.ID)
		}
		return ev, known
	}
	return Event{}, false
}

// containerLabels removes the attributes that the engine adds to the labels in an event.
func containerLabels(attributes map[string]string) map[string]string {
	labels := maps.Clone(attributes)
	for _, k := range []string{"name", "image", "exitCode", "execDuration", "signal"} {
		delete(labels, k)
	}
	return labels
}

// labelFilter returns the engine's filter for labels, which must all match; an empty value matches the key alone.
func labelFilter(labels map[string]string) filters.Args {
	f := filters.NewArgs()
	for k, v := range labels {
		if v == "" {
			f.Add("label", k)
		} else {
			f.Add("label", k+"="+v)
		}
	}
	return f
}

// LabelsMatch applies the engine's filter to the labels of one object: want must all match, an empty value matches the key alone.
func LabelsMatch(have, want map[string]string) bool {
	for k, v := range want {
		got, ok := have[k]
		if !ok || v != "" && got != v {
			return false
		}
	}
	return true
}
