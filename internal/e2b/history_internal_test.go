package e2b

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// reading is one of sandboxes that have used a time of processors.
func reading(at int64, used time.Duration, ids ...string) *agboxv1.GetStatsResponse {
	r := &agboxv1.GetStatsResponse{ReadAt: timestamppb.New(time.Unix(at, 0))}
	for _, id := range ids {
		r.Sandboxes = append(r.Sandboxes, &agboxv1.SandboxStats{SandboxId: id, Containers: []*agboxv1.ContainerStats{
			{CpuTime: durationpb.New(used), MemoryBytes: uint64(at), MemoryLimitBytes: 1 << 30},
		}})
	}
	return r
}

func TestHistory(t *testing.T) {
	var h history
	box := &agboxv1.SandboxHandle{SandboxId: "a", Spec: &agboxv1.CreateSpec{CpuLimit: 2}}
	for i := range int64(2 * samplesKept) {
		h.add(reading(30*i, time.Duration(i)*3*time.Second, "a"))
	}
	const last = 30 * (2*samplesKept - 1)
	all := h.between(box, 0, 0)
	if len(all) != samplesKept-1 || len(h.samples["a"]) != samplesKept {
		t.Fatalf("%d metrics of %d samples", len(all), len(h.samples["a"]))
	}
	if m := all[len(all)-1]; m.TimestampUnix != last || m.CPUUsedPct != 10 || m.CPUCount != 2 || m.MemUsed != last || m.MemTotal != 1<<30 {
		t.Errorf("%+v", m)
	}
	if some := h.between(box, last-60, last-30); len(some) != 2 || some[0].TimestampUnix != last-60 {
		t.Errorf("a range: %+v", some)
	}

	h.add(reading(last+30, 0, "a")) // its container was started again
	if some := h.between(box, last+1, 0); len(some) != 0 {
		t.Errorf("after a start: %+v", some)
	}
	h.add(reading(30, 0, "a"))
	if some := h.samples["a"]; len(some) != 1 {
		t.Errorf("a clock that was set back: %d samples", len(some))
	}
	h.add(reading(60, 0))
	if len(h.samples) != 0 {
		t.Errorf("after its stop: %v", h.samples)
	}

	var ids []string
	for i := range mostSampled + 10 {
		ids = append(ids, fmt.Sprint("b", i))
	}
	h.add(reading(90, 0, ids[:mostSampled-5]...))
	h.add(reading(120, 0, ids...))
	if len(h.samples) != mostSampled || len(h.samples[ids[0]]) != 2 {
		t.Errorf("%d sandboxes have samples", len(h.samples))
	}
}
