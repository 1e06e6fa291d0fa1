//go:build docker

package shim

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// TestContainerNothingOfOursIsKilledAfterAHog: on a busy machine the kernel frees a killed command's memory late, and other execs start
// before that. Without a reserve, one in 12 such kills made the kernel kill a supervisor or PID 1 as well.
func TestContainerNothingOfOursIsKilledAfterAHog(t *testing.T) {
	bin, err := builtHog()
	must(t, err)
	busy := newContainer(t) // a separate container: its commands are no candidates in the other one
	for range 4 {
		busy.start(busy.sh("while :; do :; done"))
	}
	c := newContainer(t, append(bounded(64), "-v", bin+":/hog:ro")...)
	const kills = 40
	for round := range kills {
		all := []execjournal.Request{c.start(c.request("/hog/hog", "own"))}
		for range 3 {
			time.Sleep(time.Duration(10+round*37%150) * time.Millisecond) // spreads the starts over the run and the end of the hog
			all = append(all, c.start(c.request("true")))
		}
		for i, r := range all {
			var s execjournal.Status
			// The kernel may reclaim pages of programs for half a minute before it kills the hog, if the machine is busy.
			c.within(10*patience, fmt.Sprintf("the end of exec %d in round %d", i, round), func() bool {
				s = c.look(r)
				return s.Phase == execphase.Ended || s.Phase == execphase.Lost
			})
			// While the memory is full, the kernel may kill any command; it kills that of the hog each time.
			if s.Phase != execphase.Ended || !s.Journal.OOM && (i == 0 || s.Journal.ExitCode != 0) {
				t.Fatalf("round %d, exec %d: %v, %+v", round, i, s.Phase, s.Journal)
			}
		}
	}
}

// TestContainerKeepsItsReserve: a container with a memory limit of at least 64 MiB has a reserve, and any process of it that is killed is replaced.
func TestContainerKeepsItsReserve(t *testing.T) {
	t.Parallel()
	const keeper, member = startingScore, reserveScore
	for _, limit := range []int{64, 128} {
		c := newContainer(t, bounded(limit)...)
		want := map[int]int{keeper: 1, member: reserveSize}
		c.until("the reserve", func() bool { return fmt.Sprint(c.reserve()) == fmt.Sprint(want) })
		for _, score := range []int{member, keeper} {
			before := c.reservePids(score)
			must(t, exec.Command("kill", "-9", before[0]).Run())
			c.until("another process of the reserve", func() bool {
				return fmt.Sprint(c.reserve()) == fmt.Sprint(want) && !strings.Contains(fmt.Sprint(c.reservePids(score)), before[0])
			})
		}
	}
	for _, options := range [][]string{nil, bounded(48)} {
		c := newContainer(t, options...)
		c.do(c.request("true"))
		if got := c.reserve(); len(got) > 0 {
			t.Errorf("%v: %v", options, got)
		}
	}
}

// reserve counts the processes of the reserve by their scores.
func (c *container) reserve() map[int]int {
	c.Helper()
	n := make(map[int]int)
	for _, score := range []int{startingScore, reserveScore} {
		if pids := c.reservePids(score); len(pids) > 0 {
			n[score] = len(pids)
		}
	}
	return n
}

// reservePids returns the host's process IDs of the reserve's processes with the given score.
func (c *container) reservePids(score int) (pids []string) {
	c.Helper()
	for line := range strings.Lines(docker(c, "top", c.name, "-eo", "pid,args")) {
		pid, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.Contains(args, "agbox-shim "+reserveVerb) {
			continue
		}
		text, err := exec.Command("cat", "/proc/"+pid+"/oom_score_adj").Output() // it may have exited
		if n, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil && n == score {
			pids = append(pids, pid)
		}
	}
	return pids
}
