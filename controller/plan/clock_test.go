package plan

import (
	"testing"
	"time"
)

// A wait whose start lies in the future, because the clock was ahead, counts from the moment the clock was set back.
func TestAWaitIsBoundedByAClockThatIsSetBack(t *testing.T) {
	for _, row := range []struct {
		name           string
		started, awake time.Duration
		want           string
	}{
		{"long ago", -time.Hour, -time.Hour, "SERVICE_FAILED(db:SANDBOX_SERVICE_FAILED) FAILED(SANDBOX_CREATE_FAILED)"},
		{"long ago, and the host slept meanwhile", -time.Hour, -time.Minute, "make-inputs ensure-image(mq) ensure-image next:1m0s"},
		{"to come: the clock was set back just now", 24 * time.Hour, -time.Minute, "make-inputs ensure-image(mq) ensure-image next:1m0s"},
		{"to come: the clock was set back, and there was time", 24 * time.Hour, -2 * time.Minute, "SERVICE_FAILED(db:SANDBOX_SERVICE_FAILED) FAILED(SANDBOX_CREATE_FAILED)"},
		{"this moment, by another look at the clock", time.Millisecond, -time.Hour, "make-inputs ensure-image(mq) ensure-image next:2m0.001s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := served()
			half(&s, "running", "starting")
			s.container("db").StartedAt, s.p.AwakeSince = now.Add(row.started), now.Add(row.awake)
			if got := render(Decide(s.r, s.w, s.p, now)); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// While the engine does not answer, nothing can be observed to be healthy, so that time does not count.
func TestAWaitCountsFromTheReturnOfTheEngine(t *testing.T) {
	for since, want := range map[time.Duration]string{
		-time.Minute:     "make-inputs ensure-image(mq) ensure-image next:1m0s",
		-2 * time.Minute: "SERVICE_FAILED(db:SANDBOX_SERVICE_FAILED) FAILED(SANDBOX_CREATE_FAILED)",
		time.Hour:        "SERVICE_FAILED(db:SANDBOX_SERVICE_FAILED) FAILED(SANDBOX_CREATE_FAILED)", // the clock was set back since: the time is unusable
	} {
		s := served()
		half(&s, "running", "starting")
		s.container("db").StartedAt, s.p.EngineSince = now.Add(-time.Hour), now.Add(since)
		if got := render(Decide(s.r, s.w, s.p, now)); got != want {
			t.Errorf("back for %s: got %s, want %s", -since, got, want)
		}
	}
}
