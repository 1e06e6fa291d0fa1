//go:build docker

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// TestTheOutputOfAMainProcessKeepsItsOrderAndTimes: followed over kills of the daemon, each line arrives once, in the order of both streams,
// with the time at which it was written; afterwards it is read by time from a sandbox that has FAILED.
func TestTheOutputOfAMainProcessKeepsItsOrderAndTimes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	const lines = 60
	id := d.create(&agboxv1.CreateSpec{Command: []string{"sh", "-c", fmt.Sprintf(
		"i=0; while [ $i -lt %d ]; do i=$((i+1)); echo out $i; sleep 0.1; echo err $i >&2; sleep 0.1; done; exit 3", lines/2)}})
	d.await(id, ready)
	type line struct {
		text string
		at   time.Time
	}
	read := func(req *agboxv1.StreamLogsRequest) (all []line) {
		ctx, cancel := context.WithTimeout(d.ctx(), time.Minute)
		defer cancel()
		c := must(client.DialWith(d.home+"/run/agbox/agboxd.sock", client.Options{Patience: time.Minute}))(t)
		defer c.Close()
		req.SandboxId = id
		for chunk, err := range c.Logs(ctx, req) {
			if err != nil || chunk.GetTime() == nil || chunk.GetProblem() != "" {
				t.Errorf("%v, %v", chunk, err)
				return all
			}
			for text := range strings.Lines(string(chunk.GetData())) {
				all = append(all, line{text, chunk.GetTime().AsTime()})
			}
		}
		return all
	}
	followed := make(chan []line, 1)
	go func() { followed <- read(&agboxv1.StreamLogsRequest{Follow: true, Since: &timestamppb.Timestamp{}}) }()
	for range 3 {
		time.Sleep(time.Second)
		d.restart()
	}
	all := <-followed
	d.await(id, failed)
	for i, l := range all {
		if want := fmt.Sprintf("%s %d\n", []string{"out", "err"}[i%2], i/2+1); l.text != want {
			t.Fatalf("line %d is %q, not %q", i, l.text, want)
		}
		if i > 0 && l.at.Sub(all[i-1].at) < 50*time.Millisecond {
			t.Errorf("line %d follows after %s", i, l.at.Sub(all[i-1].at))
		}
	}
	if len(all) != lines {
		t.Fatalf("%d lines", len(all))
	}
	if again := read(&agboxv1.StreamLogsRequest{Since: timestamppb.New(all[40].at)}); fmt.Sprint(again) != fmt.Sprint(all[40:]) {
		t.Errorf("since line 40: %v", again)
	}
	tail := uint32(2)
	if again := read(&agboxv1.StreamLogsRequest{Since: &timestamppb.Timestamp{}, TailLines: &tail}); fmt.Sprint(again) != fmt.Sprint(all[56:]) {
		t.Errorf("the last two of each stream: %v", again)
	}
	d.remove(id)
}
