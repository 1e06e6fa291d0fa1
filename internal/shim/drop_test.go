package shim

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/host/execjournal"
)

func TestLogLimitThatDrops(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	for _, c := range []struct {
		name, script    string
		limit           int64
		stdout, stderr  int // bytes of output in the logs
		dropped, errors int64
	}{
		{"just as much", "head -c 1000 /dev/zero", 1000, 1000, 0, 0, 0},
		{"one byte more", "head -c 1001 /dev/zero", 1000, 1000, 0, 1, 0},
		{"byte by byte", "for i in 1 2 3 4 5; do printf x; sleep 0.01; done", 3, 3, 0, 2, 0},
		{"far more", "head -c 5000000 /dev/zero", 100_000, 100_000, 0, 4_900_000, 0},
		{"on the other stream", "echo out; head -c 70000 /dev/zero >&2", 1000, 4, 1000, 0, 69_000},
		{"on both", "head -c 70000 /dev/zero | tee /dev/stderr", 10, 10, 10, 69_990, 69_990},
		{"no limit", "head -c 70000 /dev/zero", 0, 70_000, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := b.sh(c.script + "; exit 3")
			r.LogLimitBytes, r.LogLimitAction = c.limit, execjournal.LogLimitDrop
			j := b.ended(b.start(r))
			if j.ExitCode != 3 || j.LogLimit || j.LogLost || j.StdoutDroppedBytes != c.dropped || j.StderrDroppedBytes != c.errors {
				t.Errorf("%+v", j)
			}
			stdout, stderr := b.logs(r)
			wantCut(t, stdout, c.stdout, c.dropped, c.limit, j.StdoutBytes)
			wantCut(t, stderr, c.stderr, c.errors, c.limit, j.StderrBytes)
		})
	}
}

// wantCut checks that a log has the kept bytes of output, and then one marker if output was dropped.
func wantCut(t *testing.T, log string, kept int, dropped, limit, recorded int64) {
	t.Helper()
	want := ""
	if dropped > 0 {
		want = execjournal.DroppedMarker(limit)
	}
	if len(log) < kept || log[kept:] != want || strings.Contains(log[:kept], "agbox") || recorded != int64(len(log)) {
		t.Errorf("%d bytes, recorded are %d, the end is %q", len(log), recorded, log[min(kept, len(log)):])
	}
}

// An agboxd of the first release leaves the field empty.
func TestLogLimitThatKills(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	for _, action := range []string{"", execjournal.LogLimitKill} {
		r := b.sh("cat /dev/zero")
		r.LogLimitBytes, r.LogLimitAction = 1000, action
		j := b.ended(b.start(r))
		if stdout, _ := b.logs(r); !j.LogLimit || j.Signal == 0 || len(stdout) != 1000 || j.StdoutDroppedBytes == 0 {
			t.Errorf("%q: %d bytes, %+v", action, len(stdout), j)
		}
	}
}

func TestChildThatOutlivesItsCommandIsCutAtTheLimit(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	gate := filepath.Join(t.TempDir(), "gate")
	r := b.sh("(while ! test -e " + gate + "; do sleep 0.02; done; echo 234567; echo more) & echo 1")
	r.LogLimitBytes, r.LogLimitAction = 5, execjournal.LogLimitDrop
	if j := b.ended(b.start(r)); j.StdoutBytes != 2 || j.StdoutDroppedBytes != 0 {
		t.Errorf("%+v", j)
	}
	writeExecutable(t, gate, "")
	b.until("the supervisor to go", func() bool { return b.remnants() == 0 })
	if stdout, _ := b.logs(r); stdout != "1\n234"+execjournal.DroppedMarker(5) {
		t.Errorf("%q", stdout)
	}
	if j := b.look(r).Journal; j.StdoutBytes != 2 || j.StdoutDroppedBytes != 0 {
		t.Errorf("%+v", j)
	}
}
