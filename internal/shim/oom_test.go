package shim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestMemoryFilesOfBothCgroupVersions(t *testing.T) {
	for text, want := range map[string]int64{
		"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n":               3,
		"low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n": 1,
		"oom_kill_disable 0\nunder_oom 0\n":                           0,
		"oom 1\n":                                                     0,
		"oom_kill x\n":                                                0,
		"":                                                            0,
	} {
		if n := numbers(text)["oom_kill"]; n != want {
			t.Errorf("%q: %d", text, n)
		}
	}
	for text, want := range map[string]struct {
		n  int64
		ok bool
	}{
		"50331648\n": {48 << 20, true}, "max\n": {0, true}, "9223372036854771712\n": {0, true}, "": {0, false}, "x": {0, false},
	} {
		if n, ok := limitBytes(text); n != want.n || ok != want.ok {
			t.Errorf("%q: %d, %v", text, n, ok)
		}
	}
}

// TestCommandsAreKilledForMemoryBeforeShims compares the scores of shim processes with those of commands and their children.
func TestCommandsAreKilledForMemoryBeforeShims(t *testing.T) {
	t.Parallel()
	score := func(pid int) int {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		must(t, err)
		n, err := strconv.Atoi(strings.TrimSpace(string(data)))
		must(t, err)
		return n
	}
	base := score(os.Getpid())
	b := newBox(t).boot()
	want := strconv.Itoa(min(base+commandScore, maxScore))
	r := b.start(b.sh("until grep -qx -e " + want + " /proc/$$/oom_score_adj; do sleep 0.02; done; " + // its supervisor sets it
		"cat /proc/self/oom_score_adj; (cat /proc/self/oom_score_adj); echo $$; sleep 1000"))
	out := strings.Fields(b.output(r, func(s string) bool { return strings.Count(s, "\n") == 3 }))
	if out[0] != want || out[1] != want {
		t.Errorf("children of the command: %v, want %s", out, want)
	}
	pid, err := strconv.Atoi(out[2])
	must(t, err)
	if n := score(pid); strconv.Itoa(n) != want {
		t.Errorf("the command: %d, want %s", n, want)
	}
	b.until("the supervisor to have the score of init again", func() bool { return score(b.supervisor(r)) == base })
	if n := score(b.cmd.Process.Pid); n != base {
		t.Errorf("init: %d, want %d", n, base)
	}
}

// TestCommandsAreRaisedBeforeTheirFirstInstruction starts commands that report their score at once, and children that they fork at once,
// which get the score of commands later.
func TestCommandsAreRaisedBeforeTheirFirstInstruction(t *testing.T) {
	t.Parallel()
	const least = 500 // above running supervisors, however large they are
	base, err := scoreOf(os.Getpid())
	must(t, err)
	b := newBox(t).boot()
	for range 20 {
		r := b.start(b.sh("read a </proc/self/oom_score_adj; echo $a; sleep 1000 & echo $!; exec sleep 1000"))
		out := strings.Fields(b.output(r, func(s string) bool { return strings.Count(s, "\n") == 2 }))
		score, err := strconv.Atoi(out[0])
		must(t, err)
		if score < min(base.base+least, maxScore) {
			t.Errorf("a command began with the score %d", score)
		}
		child, err := strconv.Atoi(out[1])
		must(t, err)
		b.until("the child to have the score of commands", func() bool {
			is, err := scoreOf(child)
			must(t, err)
			return is.base == min(base.base+commandScore, maxScore)
		})
		must(t, b.dir.Cancel(sandbox, r.ExecID, r.Nonce))
	}
}

func TestMemoryUse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text             string
		anonymous, cache int64
	}{
		"v1":    {"rss 1\ninactive_file 2\nactive_file 3\ntotal_rss 10\ntotal_inactive_file 20\ntotal_active_file 30\n", 10, 50},
		"v2":    {"anon 10\nfile 100\ninactive_file 20\nactive_file 30\nshmem 50\n", 10, 50},
		"empty": {"", 0, 0},
	} {
		if anonymous, cache := memoryUse(c.text); anonymous != c.anonymous || cache != c.cache {
			t.Errorf("%s: %d, %d", name, anonymous, cache)
		}
	}
	if own := ownMemory(); own <= 0 {
		t.Errorf("this process holds %d bytes", own)
	}
}
