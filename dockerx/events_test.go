package dockerx

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

// streamServer answers /networks with one labelled network with the ID net, and /events with lines; then it waits for
// the client to leave, or hangs up when hangUp is set.
func streamServer(lines string, hangUp bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/networks") {
			answer(w, http.StatusOK, []map[string]any{{"Id": "net", "Name": "n", "Labels": map[string]string{"ours": "1"}}})
			return
		}
		w.WriteHeader(http.StatusOK)
		fmt.Fprint(w, lines)
		_ = http.NewResponseController(w).Flush()
		if !hangUp {
			<-r.Context().Done()
		}
	}
}

const someEvents = `
{"Type":"container","Action":"die","Actor":{"ID":"c","Attributes":{"exitCode":"7","image":"i","name":"n","ours":"1"}},"timeNano":1500000000123456789}
{"Type":"container","Action":"health_status: unhealthy","Actor":{"ID":"c","Attributes":{"image":"i","name":"n","ours":"1"}},"timeNano":1500000000123456789}
{"Type":"container","Action":"start","Actor":{"ID":"other","Attributes":{"image":"i","name":"n"}},"timeNano":1500000000123456789}
{"Type":"network","Action":"disconnect","Actor":{"ID":"net","Attributes":{"container":"c","name":"n","type":"bridge"}},"timeNano":1500000000123456789}
{"Type":"network","Action":"disconnect","Actor":{"ID":"unknown","Attributes":{"container":"c","name":"n","type":"bridge"}},"timeNano":1500000000123456789}
{"Type":"network","Action":"destroy","Actor":{"ID":"net","Attributes":{"name":"n","type":"bridge"}},"timeNano":1500000000123456790}
{"Type":"network","Action":"destroy","Actor":{"ID":"unknown","Attributes":{"name":"n","type":"bridge"}},"timeNano":1500000000123456790}
{"Type":"network","Action":"create","Actor":{"ID":"net","Attributes":{"name":"n","type":"bridge"}},"timeNano":1500000000123456790}
`

func TestEventsOfALostStream(t *testing.T) {
	e, seen := newEngine(t, newServer(t, streamServer(someEvents, true)).host)
	var got []Event
	ready := 0
	err := e.Events(t.Context(), time.Time{}, map[string]string{"ours": "1"},
		func() { ready++ },
		func(ev Event) { got = append(got, ev) })
	wantClass(t, err, errdefs.ErrUnavailable)
	ours, at := map[string]string{"ours": "1"}, time.Unix(0, 1500000000123456789).UTC()
	want := []Event{
		{Type: TypeContainer, Action: ActionDie, ID: "c", Labels: ours, ExitCode: 7, Time: at},
		{Type: TypeContainer, Action: ActionHealth, ID: "c", Labels: ours, Time: at},
		{Type: TypeNetwork, Action: ActionDisconnect, ID: "net", Labels: ours, Time: at},
		{Type: TypeNetwork, Action: ActionDestroy, ID: "net", Labels: ours, Time: at.Add(1)},
	}
	if ready != 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("ready %d times, got %+v\nwant %+v", ready, got, want)
	}
	if ops, errs := seen.take(); len(ops) != 2 || ops[0] != OpEvents || errs[0] != nil || ops[1] != OpListNetworks {
		t.Errorf("observed %v with %v", ops, errs)
	}
}

func TestEventsUntilTheCallerLeaves(t *testing.T) {
	e, _ := newEngine(t, newServer(t, streamServer("", false)).host)
	ctx, cancel := context.WithCancel(t.Context())
	err := e.Events(ctx, time.Now(), nil, cancel, func(Event) { t.Error("an event") })
	if !errors.Is(err, context.Canceled) || errdefs.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
}

func TestEventsThatAreRefused(t *testing.T) {
	e, _ := newEngine(t, newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusInternalServerError, map[string]string{"message": "no"})
	}).host)
	err := e.Events(t.Context(), time.Now(), nil, func() { t.Error("ready") }, func(Event) {})
	wantClass(t, err, errdefs.ErrInternal)
}

func TestDirectoryDropsRemovedNetworksAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d directory
		d.add("removed", map[string]string{"a": "b"})
		d.add("existing", nil)
		d.add("back", nil)
		d.removed("back") // the engine answered "not found"
		d.add("back", nil)
		d.removed("removed")
		d.removed("removed") // its event
		time.Sleep(directoryGrace - time.Second)
		if labels, ok := d.labels("removed"); !ok || labels["a"] != "b" {
			t.Errorf("too early: %v, %t", labels, ok)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, ok := d.labels("removed"); ok {
			t.Error("a removed network is still known")
		}
		for _, id := range []string{"existing", "back"} {
			if _, ok := d.labels(id); !ok {
				t.Errorf("network %s is not known", id)
			}
		}
	})
}
