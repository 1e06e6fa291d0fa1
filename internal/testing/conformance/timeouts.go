package conformance

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func notRunning(id string) refusal {
	return aboutSandbox(codes.FailedPrecondition, "SANDBOX_INVALID_STATE", id, "sandbox %s is not running")
}

func timeouts(t *testing.T, c *client) {
	c.sub(t, "what a timeout ends in", timeoutActions)
	c.sub(t, "a handle says when and how a sandbox ends", func(c *client) {
		before := time.Now()
		h := c.get(c.ready(lasting(time.Hour, "delete")))
		end := h.GetDeadlineAt().AsTime()
		if h.GetTimeout().AsDuration() != time.Hour || h.GetOnTimeout() != "delete" || end.Before(before.Add(time.Hour)) ||
			end.After(time.Now().Add(time.Hour)) {
			c.Errorf("%v", h)
		}
		if h := c.get(c.ready()); h.GetTimeout() != nil || h.GetOnTimeout() != "" || h.GetDeadlineAt() != nil {
			c.Errorf("without one: %v", h)
		}
	})
	c.sub(t, "an end that is moved", moveTheEnd)
	c.sub(t, "times that are refused", badTimes)
	c.sub(t, "nothing ends while it is paused, and a resume starts over", func(c *client) {
		id, witness := c.paused(lasting(time.Hour, "delete")), c.ready()
		c.sets(id, after(time.Second))
		c.sets(witness, after(time.Second))
		c.await(witness, stopped) // has had the same time and more
		if h := c.get(id); h.GetState() != paused || h.GetDeadlineAt().AsTime().After(time.Now()) {
			c.Errorf("%v", h)
		}
		c.must(c.tryResume(id))
		h := c.await(id, ready)
		if end := h.GetDeadlineAt().AsTime(); end.Before(time.Now().Add(time.Hour - time.Minute)) {
			c.Errorf("it ends at %v", end)
		}
	})
	c.sub(t, "what is set while paused holds after the resume", func(c *client) {
		id := c.paused(lasting(2*time.Hour, ""))
		end := c.sets(id, after(time.Hour)).GetDeadlineAt()
		c.must(c.tryResume(id))
		if h := c.await(id, ready); !h.GetDeadlineAt().AsTime().Equal(end.AsTime()) {
			c.Errorf("was to end at %v, ends at %v", end.AsTime(), h.GetDeadlineAt().AsTime())
		}
	})
	c.sub(t, "a stop forgets it", func(c *client) {
		id := c.ready()
		c.sets(id, after(time.Hour))
		c.stops(id)
		if h := c.get(id); h.GetDeadlineAt() != nil {
			c.Errorf("%v", h)
		}
	})
	c.sub(t, "a timeout that changes counts from the change", func(c *client) {
		id := c.ready(lasting(time.Hour, ""))
		before := time.Now()
		next := &spec{Image: c.target.Image, Timeout: durationpb.New(3 * time.Hour)}
		if h := c.update(id, next, false).GetSandbox(); h.GetDeadlineAt().AsTime().Before(before.Add(3 * time.Hour)) {
			c.Errorf("%v", h)
		}
		c.allRows(c.history(id)[3:], "SPEC_CHANGED -", "TIMEOUT_SET -")
	})
}

func lasting(d time.Duration, onTimeout string) func(*spec) {
	return func(s *spec) { s.Timeout, s.OnTimeout = durationpb.New(d), onTimeout }
}

func after(d time.Duration) *agboxv1.SetSandboxTimeoutRequest {
	return &agboxv1.SetSandboxTimeoutRequest{When: &agboxv1.SetSandboxTimeoutRequest_Timeout{Timeout: durationpb.New(d)}}
}

func at(t time.Time) *agboxv1.SetSandboxTimeoutRequest {
	return &agboxv1.SetSandboxTimeoutRequest{When: &agboxv1.SetSandboxTimeoutRequest_DeadlineAt{DeadlineAt: timestamppb.New(t)}}
}

func (c *client) trySet(id string, req *agboxv1.SetSandboxTimeoutRequest) (*agboxv1.SetSandboxTimeoutResponse, error) {
	req.SandboxId = id
	return c.SetSandboxTimeout(c.ctx(), req)
}

func (c *client) sets(id string, req *agboxv1.SetSandboxTimeoutRequest) *agboxv1.SetSandboxTimeoutResponse {
	c.Helper()
	resp, err := c.trySet(id, req)
	c.must(err)
	return resp
}

func timeoutActions(c *client) {
	for _, row := range []struct {
		action string
		last   agboxv1.EventType
		events []string
	}{
		{"", agboxv1.EventType_SANDBOX_STOPPED, []string{"STOP_REQUESTED READY reason=timeout", "STOPPED STOPPED reason=timeout"}},
		{"stop", agboxv1.EventType_SANDBOX_STOPPED, []string{"STOP_REQUESTED READY reason=timeout", "STOPPED STOPPED reason=timeout"}},
		{"pause", agboxv1.EventType_SANDBOX_PAUSED, []string{"PAUSE_REQUESTED READY reason=timeout", "PAUSED PAUSED reason=timeout"}},
		{"delete", agboxv1.EventType_SANDBOX_DELETED, []string{"DELETE_REQUESTED DELETING reason=timeout", "DELETED DELETED reason=timeout"}},
	} {
		if row.action == "pause" && c.target.NoCgroups {
			req := &agboxv1.CreateSandboxRequest{CreateSpec: &spec{Image: c.target.Image}}
			lasting(time.Second, row.action)(req.CreateSpec)
			c.refused(errOf(c.CreateSandbox(c.ctx(), req)), invalid("on_timeout", "on_timeout cannot be pause: ..."))
			continue
		}
		id := c.create(lasting(time.Second, row.action))
		list := c.subscribe(id, 0, false).until(row.last)
		c.allRows(list, append([]string{rowAccepted, rowPreparing, rowReady}, row.events...)...)
		begin, end := list[2].GetOccurredAt().AsTime(), list[3].GetOccurredAt().AsTime()
		if lived := end.Sub(begin); lived < time.Second {
			c.Errorf("%q after %v", row.action, lived)
		}
	}
}

func moveTheEnd(c *client) {
	id := c.ready()
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, row := range []struct {
		name       string
		req        *agboxv1.SetSandboxTimeoutRequest
		onlyExtend bool
		want       time.Time // zero: never
		changed    bool
	}{
		{"later", at(end), false, end, true},
		{"the same", at(end), false, end, false},
		{"sooner, if that is later", at(end.Add(-time.Minute)), true, end, false},
		{"later, if that is later", at(end.Add(time.Minute)), true, end.Add(time.Minute), true},
		{"sooner", at(end), false, end, true},
		{"never, if that is later", after(0), true, time.Time{}, true},
		{"later than never", at(end), true, time.Time{}, false},
	} {
		row.req.OnlyExtend = row.onlyExtend
		resp := c.sets(id, row.req)
		h := c.get(id)
		for _, got := range []*timestamppb.Timestamp{resp.GetDeadlineAt(), h.GetDeadlineAt()} {
			if (got == nil) != row.want.IsZero() || got != nil && !got.AsTime().Equal(row.want) {
				c.Errorf("%s: ends at %v, want %v", row.name, got.AsTime(), row.want)
			}
		}
		if resp.GetChanged() != row.changed {
			c.Errorf("%s: changed is %t", row.name, resp.GetChanged())
		}
	}
	var ends []string
	for _, e := range c.history(id)[3:] {
		ends = append(ends, row(e)+" "+e.GetTimeoutSet().GetDeadlineAt().AsTime().Sub(end).String())
	}
	if len(ends) != 4 || ends[0] != "TIMEOUT_SET - 0s" || ends[1] != "TIMEOUT_SET - 1m0s" || ends[2] != "TIMEOUT_SET - 0s" {
		c.Errorf("events: %q", ends)
	}
}

func badTimes(c *client) {
	id := c.ready()
	const bounds = " must be 0 (never) or a duration from 1s to 10 years"
	for _, row := range []struct {
		req  *agboxv1.SetSandboxTimeoutRequest
		want refusal
	}{
		{&agboxv1.SetSandboxTimeoutRequest{}, invalid("timeout", "timeout or deadline_at is required")},
		{after(-time.Second), invalid("timeout", "timeout"+bounds)},
		{after(time.Millisecond), invalid("timeout", "timeout"+bounds)},
		{at(time.Now().Add(-time.Minute)), invalid("deadline_at", "deadline_at must not be in the past")},
		{at(time.Unix(0, 0)), invalid("deadline_at", "deadline_at must not be in the past")},
		{at(time.Now().AddDate(11, 0, 0)), invalid("deadline_at", "deadline_at must be at most 10 years from now")},
	} {
		c.refused(errOf(c.trySet(id, row.req)), row.want)
	}
	for _, bad := range []*spec{
		{Image: c.target.Image, Timeout: durationpb.New(-1)}, {Image: c.target.Image, OnTimeout: "explode"},
	} {
		err := errOf(c.CreateSandbox(c.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: bad}))
		c.refused(err, invalid(infoOfError(err).GetMetadata()["field"], "..."))
	}
}
