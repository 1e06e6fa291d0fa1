package dockertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agbox/agbox/dockerx"
)

// follower collects the events of one subscription.
type follower struct {
	cancel context.CancelFunc
	done   chan error

	mu   sync.Mutex
	seen []dockerx.Event
}

// follow subscribes and returns when the engine has accepted the subscription. also is called for each event.
func (w *world) follow(since time.Time, also ...func(dockerx.Event)) *follower {
	w.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	f := &follower{cancel: cancel, done: make(chan error, 1)}
	ready := make(chan struct{})
	go func() {
		f.done <- w.e.Events(ctx, since, w.labels, func() { close(ready) }, func(e dockerx.Event) {
			for _, fn := range also {
				fn(e)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen = append(f.seen, e)
		})
	}()
	select {
	case <-ready:
	case err := <-f.done:
		w.Fatalf("not accepted: %v", err)
	}
	return f
}

func (f *follower) events() []dockerx.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// stop cancels the subscription and waits for its end.
func (w *world) stop(f *follower) {
	w.Helper()
	f.cancel()
	if err := <-f.done; !errors.Is(err, context.Canceled) {
		w.Errorf("the stream ended with %v", err)
	}
}

// stories returns "type action exitcode" by object, in order, without the disconnects, of which engines send one or two.
func stories(events []dockerx.Event) map[string][]string {
	out := map[string][]string{}
	for _, e := range events {
		if e.Action == dockerx.ActionDisconnect {
			continue
		}
		s := e.Type + " " + e.Action
		if e.Action == dockerx.ActionDie {
			s += fmt.Sprintf(" %d", e.ExitCode)
		}
		out[e.ID] = append(out[e.ID], s)
	}
	return out
}

var (
	containerStory = []string{"container create", "container start", "container kill", "container die 137", "container destroy"}
	networkStory   = []string{"network destroy"}
)

// live runs a container and a network through their lifecycles and returns their IDs.
func (w *world) live(name string, labels map[string]string) (container, network string) {
	w.Helper()
	n := must(w.e.CreateNetwork(w.ctx, dockerx.NetworkSpec{Name: w.name + name, Labels: labels}))(w)
	spec := w.spec(name, n.ID)
	spec.Labels = labels
	id := w.create(spec)
	w.ok(w.e.StartContainer(w.ctx, id))
	w.kill(id)
	w.ok(w.e.RemoveContainer(w.ctx, id))
	w.ok(w.e.RemoveNetwork(w.ctx, n.ID))
	return id, n.ID
}

func checkEvents(w *world) {
	before := w.network(w.name + "before")
	f := w.follow(time.Time{})
	defer w.stop(f)
	otherContainer, otherNetwork := w.live("other", map[string]string{worldLabel: "other"})
	container, network := w.live("", w.labels)
	w.ok(w.e.RemoveNetwork(w.ctx, before.ID))
	w.wantStories(f, map[string][]string{container: containerStory, network: networkStory, before.ID: networkStory})
	for _, e := range f.events() {
		if e.ID == otherContainer || e.ID == otherNetwork {
			w.Errorf("an event of another label: %+v", e)
		}
		if e.Labels[worldLabel] != w.name || e.Time.IsZero() {
			w.Errorf("event without our label or a time: %+v", e)
		}
	}
}

// wantStories waits for the stories of these objects.
func (w *world) wantStories(f *follower, want map[string][]string) {
	w.Helper()
	var got map[string][]string
	defer func() {
		if w.Failed() {
			w.Logf("got %v", got)
		}
	}()
	w.eventually(fmt.Sprintf("events %v", want), func() bool {
		got = stories(f.events())
		for id, story := range want {
			if !slices.Equal(got[id], story) {
				return false
			}
		}
		return true
	})
}

func checkReplay(w *world) {
	old, _ := w.live("old", w.labels)
	time.Sleep(2 * time.Millisecond) // so that the times differ
	since := time.Now()
	container, network := w.live("", w.labels)
	f := w.follow(since)
	defer w.stop(f)
	w.wantStories(f, map[string][]string{container: containerStory, network: networkStory})
	if s := stories(f.events())[old]; s != nil {
		w.Errorf("replayed from before: %v", s)
	}
}

func checkStreamEnd(w *world) {
	f := w.follow(time.Time{})
	w.stop(f)
}
