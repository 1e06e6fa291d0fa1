package usage_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/usage"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/store"
)

func TestStats(t *testing.T) {
	const ready, paused = agboxv1.SandboxState_SANDBOX_STATE_READY, agboxv1.SandboxState_SANDBOX_STATE_PAUSED
	box := func(id string, state agboxv1.SandboxState, change ...func(*store.Sandbox)) store.Sandbox {
		sb := store.Sandbox{ID: id, Name: "the-" + id, State: state, Desired: &storev1.Desired{
			Objects: &storev1.Objects{PrimaryId: id + "-primary", ServiceIds: map[string]string{"b": id + "-b", "a": id + "-a"}},
		}}
		for _, fn := range change {
			fn(&sb)
		}
		return sb
	}
	all := []store.Sandbox{
		box("on", ready), box("frozen", paused),
		box("demoted", paused, func(sb *store.Sandbox) { sb.Desired.DemotedAt = 1 }),
		box("off", agboxv1.SandboxState_SANDBOX_STATE_STOPPED), box("broken", ready, func(sb *store.Sandbox) { sb.Corrupt = true }),
		box("fresh", ready, func(sb *store.Sandbox) { sb.Desired.Objects = nil }),
	}
	used := dockerx.Usage{CPU: time.Second, MemoryBytes: 1, MemoryLimitBytes: 2, Pids: 3, PidsLimit: 4, ReadBytes: 5, WrittenBytes: 6}
	asked := 0
	m := usage.New(usage.Options{
		Count: func() map[agboxv1.SandboxState]int {
			return map[agboxv1.SandboxState]int{ready: 3, paused: 2, agboxv1.SandboxState_SANDBOX_STATE_STOPPED: 1}
		},
		List: func(context.Context, store.Filter) ([]store.Sandbox, error) { return slices.Clone(all), nil },
		Sandbox: func(_ context.Context, id string) (store.Sandbox, error) {
			i := slices.IndexFunc(all, func(sb store.Sandbox) bool { return sb.ID == id })
			if i < 0 {
				return store.Sandbox{}, context.Canceled
			}
			return all[i], nil
		},
		Read: func(ids []string) map[string]dockerx.Usage {
			asked = len(ids)
			out := map[string]dockerx.Usage{}
			for _, id := range ids {
				if id != "frozen-b" { // a service that has ended
					out[id] = used
				}
			}
			return out
		},
	})
	stats := func(ids ...string) []string {
		t.Helper()
		list, err := m.Stats(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, sb := range list {
			text := sb.GetSandboxId() + " " + sb.GetName()
			for _, c := range sb.GetContainers() {
				text += " " + c.GetServiceName() + ";"
				want := &agboxv1.ContainerStats{
					ServiceName: c.GetServiceName(), CpuTime: durationpb.New(time.Second), MemoryBytes: 1, MemoryLimitBytes: 2, Pids: 3, PidsLimit: 4,
					IoReadBytes: 5, IoWrittenBytes: 6,
				}
				if !proto.Equal(c, want) {
					t.Errorf("%s: %v", text, c)
				}
			}
			got = append(got, text)
		}
		return got
	}
	if got, want := stats(), []string{"on the-on ; a; b;", "frozen the-frozen ; a;", "fresh the-fresh"}; !slices.Equal(got, want) {
		t.Errorf("of all: %q, want %q", got, want)
	}
	if got, want := stats("off", "on"), []string{"off the-off", "on the-on ; a; b;"}; !slices.Equal(got, want) || asked != 3 {
		t.Errorf("of two: %q, want %q; %d containers were read", got, want, asked)
	}
	if _, err := m.Stats(t.Context(), []string{"on", "nobody"}); err == nil {
		t.Error("an unknown sandbox: no error")
	}
	if scraped, omitted := m.Scrape(4); len(scraped) > 0 || omitted != 5 {
		t.Errorf("over the limit: %v, %d omitted", scraped, omitted)
	}
	want := []metrics.SandboxUsage{
		{ID: "on", Name: "the-on", CPUSeconds: 3, MemoryBytes: 3, MemoryLimitBytes: 6, Pids: 9, ReadBytes: 15, WrittenBytes: 18},
		{ID: "frozen", Name: "the-frozen", CPUSeconds: 2, MemoryBytes: 2, MemoryLimitBytes: 4, Pids: 6, ReadBytes: 10, WrittenBytes: 12},
	}
	if scraped, omitted := m.Scrape(5); !slices.Equal(scraped, want) || omitted != 0 {
		t.Errorf("scraped %v, %d omitted", scraped, omitted)
	}
	used.MemoryLimitBytes = 0
	if scraped, _ := m.Scrape(5); len(scraped) != 2 || scraped[0].MemoryLimitBytes != 0 {
		t.Errorf("without a limit: %v", scraped)
	}
}
