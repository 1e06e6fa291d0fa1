package dockerx

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

func TestLimitsRoundTrip(t *testing.T) {
	for _, l := range []Limits{
		{}, {NanoCPUs: 10_000_000}, {NanoCPUs: 333_333_333}, {MemoryBytes: 64 << 20}, {Pids: 7}, {1_000_000_000, 1 << 40, 4_000_000},
		{NanoCPUs: 999_999_990_000}, {NanoCPUs: 1_234_567_890_000},
	} {
		made, changed := l.resources(), l.update()
		if got := limitsOf(&made); got != l.Rounded() {
			t.Errorf("created with %+v: %+v", l, got)
		}
		if got := limitsOf(&changed); got != l.Rounded() {
			t.Errorf("changed to %+v: %+v", l, got)
		}
		if changed.CPUQuota == 0 || changed.Memory == 0 || changed.MemorySwap != changed.Memory || changed.PidsLimit == nil {
			t.Errorf("%+v does not set every limit: %+v", l, changed)
		}
	}
}

func TestLimitsSetByOtherClients(t *testing.T) {
	unlimited := int64(-1)
	for name, tc := range map[string]struct {
		r    container.Resources
		want Limits
	}{
		"docker update --cpus":    {container.Resources{NanoCPUs: 123_456_789}, Limits{NanoCPUs: 123_456_789}},
		"another period":          {container.Resources{CPUPeriod: 50_000, CPUQuota: 25_000}, Limits{NanoCPUs: 500_000_000}},
		"a period of no decimals": {container.Resources{CPUPeriod: 60_000, CPUQuota: 30_000}, Limits{NanoCPUs: 500_000_000}},
		"a quota without period":  {container.Resources{CPUQuota: 25_000}, Limits{NanoCPUs: 250_000_000}},
		"pids without limit":      {container.Resources{PidsLimit: &unlimited}, Limits{}},
		"more swap than memory":   {container.Resources{Memory: 1 << 30, MemorySwap: 2 << 30}, Limits{MemoryBytes: 1 << 30}},
		"-1 for no limit":         {container.Resources{CPUQuota: -1, Memory: -1, MemorySwap: -1}, Limits{}},
	} {
		if got := limitsOf(&tc.r); got != tc.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestInvalidLimits(t *testing.T) {
	for _, l := range []Limits{{NanoCPUs: -1}, {MemoryBytes: -1}, {Pids: -1}, {NanoCPUs: minNanoCPUs - 1}} {
		if err := l.Check(); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
