package hostclock

import (
	"testing"
	"time"
)

func TestReadTheHostsClocks(t *testing.T) {
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	a := c.Read()
	time.Sleep(20 * time.Millisecond) // the interval that the clocks must show
	b := c.Read()
	if a.BootID == "" || a.BootID != b.BootID || a.BootID != c.BootID() {
		t.Errorf("boot IDs %q, %q", a.BootID, b.BootID)
	}
	if d := c.Now().Sub(b.Wall); d < 0 || d > 10*time.Second {
		t.Errorf("Now is %v after the previous reading", d)
	}
	for what, d := range map[string]time.Duration{
		"wall": b.Wall.Sub(a.Wall), "since boot": b.SinceBoot - a.SinceBoot, "awake": b.Awake - a.Awake,
	} {
		if d < 20*time.Millisecond || d > 10*time.Second {
			t.Errorf("%s went on by %v", what, d)
		}
	}
	if apart := b.Wall.Add(-b.SinceBoot).Sub(a.Wall.Add(-a.SinceBoot)).Abs(); apart > maxApart {
		t.Errorf("the time of the boot differs by %v", apart)
	}
}
