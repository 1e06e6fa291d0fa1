//go:build docker

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func (d *daemon) data(name string) string { return filepath.Join(d.home, "data/agents-sandbox", name) }

// What a rebuild may have to do without.
const (
	theDatabase = "ids.db"
	theUUID     = "instance"
	theLog      = "log/*"
)

// lose removes files of a daemon that does not run; its log starts over, so that only what comes counts.
func (d *daemon) lose(patterns ...string) {
	d.Helper()
	for _, p := range patterns {
		if p == theUUID {
			d.former = append(d.former, strings.TrimSpace(d.read(d.data("instance"))))
		}
		files := must(filepath.Glob(d.data(p)))(d)
		if len(files) == 0 {
			d.Fatalf("there is no %s", p)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				d.Fatal(err)
			}
		}
	}
	d.log = &logFile{}
}

// killLogged kills the daemon once its log has all records: a daemon that lives for a moment only has not written its first snapshot.
func (d *daemon) killLogged() {
	d.Helper()
	d.eventually("the log is complete", func() error {
		snapshots := must(filepath.Glob(d.data("log/snapshot-????????")))(d)
		segments := must(filepath.Glob(d.data("log/segment-*")))(d)
		if n, m := len(snapshots), len(segments); n == 0 || m == 0 || snapshots[n-1][len(snapshots[n-1])-8:] != segments[m-1][len(segments[m-1])-8:] {
			return fmt.Errorf("the log is %v %v", snapshots, segments)
		}
		return nil
	})
	d.kill()
}

// view is all that can be seen of one sandbox.
type view struct {
	handle     *agboxv1.SandboxHandle
	execs      map[string]*agboxv1.ExecStatus
	logs       map[string]string
	containers []string
	events     []*agboxv1.SandboxEvent
}

// viewed looks at a sandbox and at some of its execs.
func (d *daemon) viewed(id string, execs ...string) view {
	d.Helper()
	containers, _ := d.engineHolds(id)
	slices.Sort(containers)
	v := view{d.sandbox(id), map[string]*agboxv1.ExecStatus{}, map[string]string{}, containers, nil}
	v.events = d.eventsTo(id, v.handle.GetLastEventSequence())
	for _, execID := range execs {
		e := must(d.GetExec(d.ctx(), &agboxv1.GetExecRequest{ExecId: execID}))(d).GetExec()
		v.execs[execID], v.logs[execID] = e, d.read(e.GetStdoutLogPath())+"|"+d.read(e.GetStderrLogPath())
	}
	return v
}

// sameAfter compares with before, field by field, but for what the rebuild itself adds, the channel, which PID 1 connects again, and what
// blank blanks out.
func (d *daemon) sameAfter(what string, was view, blank func(*agboxv1.SandboxHandle)) {
	d.Helper()
	is := d.viewed(was.handle.GetSandboxId(), slices.Collect(maps.Keys(was.execs))...)
	if is.handle.GetRehydrated() == nil || is.handle.GetLastEventSequence() <= was.handle.GetLastEventSequence() {
		d.Errorf("%s: it was not rebuilt: %v", what, is.handle)
	}
	compared := func(v view) *agboxv1.SandboxHandle {
		h := proto.CloneOf(v.handle)
		h.Rehydrated, h.LastEventSequence, h.StatusMessage, h.Channel = nil, 0, "", ""
		blank(h)
		return h
	}
	if got, want := compared(is), compared(was); !proto.Equal(got, want) {
		d.Errorf("%s: it is\n%v\nand was\n%v", what, got, want)
	}
	if !slices.Equal(is.containers, was.containers) {
		d.Errorf("%s: its containers are %v and were %v", what, is.containers, was.containers)
	}
	for id, e := range was.execs {
		d.sameExec(what, is.execs[id], e, is.handle.GetRehydrated().GetDefaulted())
		if is.logs[id] != was.logs[id] {
			d.Errorf("%s: exec %s has said %q, and before %q", what, id, is.logs[id], was.logs[id])
		}
	}
}

// sameAsBefore checks that everything is as it was, but for what the daemon's loops have done since.
func (d *daemon) sameAsBefore(what string, was view) {
	d.Helper()
	id := was.handle.GetSandboxId()
	is := d.viewed(id, slices.Collect(maps.Keys(was.execs))...)
	before, now := proto.CloneOf(was.handle), proto.CloneOf(is.handle)
	before.StatusMessage, now.StatusMessage = "", ""
	before.Channel, now.Channel = "", "" // its PID 1 connects again
	if now.GetRehydrated() != nil || !proto.Equal(before, now) {
		d.Errorf("%s: it is\n%v\nand was\n%v", what, now, before)
	}
	if !slices.Equal(is.containers, was.containers) {
		d.Errorf("%s: its containers are %v and were %v", what, is.containers, was.containers)
	}
	if !slices.EqualFunc(is.events, was.events, func(a, b *agboxv1.SandboxEvent) bool { return proto.Equal(a, b) }) {
		d.Errorf("%s: its events are %v and were %v", what, is.events, was.events)
	}
	for execID, e := range was.execs {
		if !proto.Equal(is.execs[execID], e) || is.logs[execID] != was.logs[execID] {
			d.Errorf("%s: exec is %v %q, and was %v %q", what, is.execs[execID], is.logs[execID], e, was.logs[execID])
		}
	}
}

// eventsTo are all events up to a sequence.
func (d *daemon) eventsTo(id string, last uint64) (events []*agboxv1.SandboxEvent) {
	d.Helper()
	ctx, cancel := context.WithCancel(d.ctx())
	defer cancel()
	stream := must(d.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id}))(d)
	for {
		e := must(stream.Recv())(d)
		if events = append(events, e); e.GetSequence() >= last {
			return events
		}
	}
}

// sameExec allows for what a sandbox without its record can't know: when an exec was accepted, and the command of one that has
// ended.
func (d *daemon) sameExec(what string, is, was *agboxv1.ExecStatus, guessed []string) {
	d.Helper()
	is, was = proto.CloneOf(is), proto.CloneOf(was)
	is.LastEventSequence, was.LastEventSequence = 0, 0
	if len(guessed) > 0 {
		is.CreatedAt, was.CreatedAt = nil, nil
	}
	if slices.Contains(guessed, "execs") && len(is.GetCommand()) == 0 {
		was.Command = nil
	}
	if !proto.Equal(is, was) {
		d.Errorf("%s: exec is %v, and was %v", what, is, was)
	}
}

// wantRebuilt checks what was guessed of a sandbox, and that the log, the event and describe say the same.
func (d *daemon) wantRebuilt(id, source string, guessed ...string) {
	d.Helper()
	got := d.sandbox(id).GetRehydrated().GetDefaulted()
	if !slices.Equal(got, guessed) {
		d.Errorf("%s: guessed is %v, want %v", id, got, guessed)
	}
	log := d.log.tail(1 << 20)
	if !strings.Contains(log, fmt.Sprintf(`"sandbox_id":%q,"source":%q`, id, source)) {
		d.Errorf("the log does not say that %s was rebuilt from %s: %s", id, source, log)
	}
	out := d.agbox("describe", id)
	for _, field := range guessed {
		if !strings.Contains(out, field) {
			d.Errorf("describe does not name %s: %s", field, out)
		}
	}
	if e := d.firstEvent(id); e.GetEventType() != agboxv1.EventType_SANDBOX_REHYDRATED || !slices.Equal(e.GetRehydrated().GetDefaulted(), guessed) {
		d.Errorf("%s: its history begins with %v", id, e)
	}
}

// firstEvent is the oldest that is retained.
func (d *daemon) firstEvent(id string) *agboxv1.SandboxEvent {
	d.Helper()
	stream := must(d.SubscribeSandboxEvents(d.ctx(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id}))(d)
	return must(stream.Recv())(d)
}

// dryRun runs agboxd rehydrate --dry-run and returns the line of each sandbox, and the rest.
func (d *daemon) dryRun() (lines map[string]string, rest string) {
	d.Helper()
	out, err := d.command("rehydrate", "--dry-run").Output()
	if err != nil {
		d.Fatalf("%v\n%s", err, out)
	}
	lines = map[string]string{}
	for line := range strings.Lines(string(out)) {
		switch fields := strings.Fields(line); {
		case strings.HasPrefix(line, "log: "):
		case strings.HasPrefix(line, "skipped: "), strings.HasPrefix(line, "former "):
			rest += line
		case len(fields) > 2:
			lines[fields[0]] = strings.Join(fields[1:], " ")
		}
	}
	return lines, rest
}

func (d *daemon) asleep(id string) {
	d.Helper()
	must(d.PauseSandbox(d.ctx(), &agboxv1.PauseSandboxRequest{SandboxId: id}))(d)
	d.await(id, agboxv1.SandboxState_SANDBOX_STATE_PAUSED)
}

// until sets a deadline.
func (d *daemon) until(id string, at time.Time) {
	d.Helper()
	when := &agboxv1.SetSandboxTimeoutRequest_DeadlineAt{DeadlineAt: timestamppb.New(at)}
	must(d.SetSandboxTimeout(d.ctx(), &agboxv1.SetSandboxTimeoutRequest{SandboxId: id, When: when}))(d)
}
