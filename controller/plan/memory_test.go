package plan

import "testing"

func TestTheEndForWantOfMemoryNamesTheLimit(t *testing.T) {
	for _, c := range []struct {
		limit int64
		want  string
	}{
		{0, "killed: out of memory"},
		{48 << 20, "killed: out of memory (limit 48MiB)"},
		{3 << 29, "killed: out of memory (limit 1.5GiB)"},
	} {
		if got := OutOfMemory(c.limit); got != c.want {
			t.Errorf("%d: %q", c.limit, got)
		}
	}
	dead := Container{ExitCode: 137, OOMKilled: true, Limits: Limits{MemoryBytes: 48 << 20}}
	if code, text := death(dead, true, "the primary container"); code != CodeContainerOOM ||
		text != "the primary container was killed: out of memory (limit 48MiB)" {
		t.Errorf("%s: %q", code, text)
	}
}
