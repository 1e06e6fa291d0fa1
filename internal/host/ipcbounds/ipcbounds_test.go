package ipcbounds

import (
	"maps"
	"testing"
)

func TestAllBoundsTogetherLeaveRoom(t *testing.T) {
	for limit := int64(32 * mib); limit <= 64<<30; limit += limit / 7 {
		b := Of(limit)
		if sum := b.Sum(); sum > limit*3/4+mib || sum > limit-Room {
			t.Errorf("limit %d: %d", limit, sum)
		}
		if least := Least(limit); least > limit || least > 192*mib || least < b.Sum() {
			t.Errorf("limit %d: at least %d", limit, least)
		}
	}
}

func TestBoundsOfALimit(t *testing.T) {
	want := map[string]string{
		"kernel.shmall": "1536", "kernel.shmmni": "384", "kernel.msgmni": "1", "kernel.msgmnb": "16384", "kernel.sem": "6144 6144 500 1228",
		"fs.mqueue.queues_max": "8",
	}
	b := Of(48 * mib)
	if got := b.Sysctls(); !maps.Equal(got, want) || b.ShmBytes != 24*mib || b.ShmFiles != 768 {
		t.Errorf("%v %+v", got, b)
	}
	if got := Least(0); got != 72*mib {
		t.Errorf("made without a limit: %d", got)
	}
	if got := Least(6 * mib); got != 6*mib {
		t.Errorf("a limit that was too small already: %d", got)
	}
}
