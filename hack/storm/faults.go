package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agbox/agbox/internal/host/naming"

	"github.com/agbox/agbox/internal/wait"
)

var discard = log.New(io.Discard, "", 0)

// The kinds of faults.
const (
	faultKill    = "kill"    // kill -9 of the daemon
	faultProxy   = "proxy"   // the proxy changes the engine's answers
	faultENOSPC  = "enospc"  // the disk of the data directory fills up
	faultOOM     = "oom"     // programs that allocate more memory than their sandbox has
	faultClock   = "clock"   // the daemon's clock jumps
	faultOutside = "outside" // docker commands kill, stop, pause and remove containers
)

var allFaults = []string{faultKill, faultProxy, faultENOSPC, faultOOM, faultClock, faultOutside}

func parseFaults(text string) ([]string, error) {
	var list []string
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		if !slices.Contains(allFaults, f) {
			return nil, fmt.Errorf("fault %q is none of %s", f, strings.Join(allFaults, ","))
		}
		list = append(list, f)
	}
	return list, nil
}

// storm is one run of the command.
type storm struct {
	seed   uint64
	faults []string
	site   *site
	daemon *daemon
	proxy  *proxy
	book   *book
	disk   disk
	// truce is held while the daemon is killed, and during a lie that must be observed by a single run of the daemon.
	truce sync.Mutex
	// victim is the last hidden sandbox. Only lie uses it.
	victim string
}

func (s *storm) has(fault string) bool { return slices.Contains(s.faults, fault) }

// rng returns a separate random generator for each loop, so that the schedule depends only on the seed.
func (s *storm) rng(n uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, n)) }

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// kills kills the daemon at random moments, and checks whether it had exited before.
func (s *storm) kills(ctx context.Context) error {
	r := s.rng(2)
	for wait.For(ctx, between(r, 300*time.Millisecond, 6*time.Second)) == nil {
		away := between(r, 0, time.Second)
		s.truce.Lock()
		err := s.daemon.kill(away)
		s.truce.Unlock()
		if err != nil {
			return err
		}
		s.book.count("kill -9 of the daemon")
	}
	return nil
}

// watchEvery is the time between two checks of the daemon's process.
const watchEvery = 500 * time.Millisecond

// watch restarts a daemon that has exited without a kill. This is allowed on a full disk; otherwise it is a violation.
func (s *storm) watch(ctx context.Context) error {
	for since := time.Now(); wait.For(ctx, watchEvery) == nil; since = time.Now() {
		ended, err := s.daemon.ensure()
		if err != nil {
			return err
		}
		if !ended {
			continue
		}
		s.book.count("ends of the daemon by itself")
		if !s.disk.wasFull(since) {
			s.book.problem("the daemon ended by itself while the disk had room; its log says why")
		}
	}
	return nil
}

// afterFull is how long after a full disk the daemon may still exit because of it: a start that failed on it takes time to exit.
const afterFull = 2 * time.Second

// disk records when the storm filled the data directory's file system. The zero value has free space.
type disk struct {
	mu    sync.Mutex
	full  bool
	until time.Time // when it last had free space again
}

func (d *disk) fills() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = true
}

func (d *disk) hasRoom(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.until = false, now
}

// wasFull reports whether the disk was full at any time after since, or shortly before it.
func (d *disk) wasFull(since time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.full || d.until.Add(afterFull).After(since)
}

// fill uses up the free space of the data directory's file system, and frees it again.
func (s *storm) fill(ctx context.Context) error {
	r := s.rng(4)
	path := filepath.Join(s.site.data(), "filler")
	for wait.For(ctx, between(r, 3*time.Second, 15*time.Second)) == nil {
		s.book.count("disk filled")
		s.disk.fills()
		if err := fillUp(path); err != nil {
			return err
		}
		_ = wait.For(ctx, between(r, time.Second, 6*time.Second))
		if err := os.Remove(path); err != nil {
			return err
		}
		s.disk.hasRoom(time.Now())
	}
	return nil
}

func fillUp(path string) error {
	f, err := os.Create(path)
	if err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return os.WriteFile(path, nil, 0o600)
		}
		return err
	}
	defer f.Close()
	for size := 1 << 20; size >= 512; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				return err
			}
			size /= 2
		}
	}
	return nil
}

// interfere runs docker commands like users of the host.
func (s *storm) interfere(ctx context.Context) error {
	r := s.rng(5)
	verbs := [][]string{{"kill"}, {"stop", "-t", "1"}, {"pause"}, {"rm", "-f"}}
	for wait.For(ctx, between(r, 2*time.Second, 10*time.Second)) == nil {
		verb, pick := verbs[r.IntN(len(verbs))], r.IntN(1<<16)
		out, err := exec.CommandContext(ctx, "docker", "ps", "-q", "--filter", "label="+naming.Instance+"="+s.site.instance()).Output()
		ids := strings.Fields(string(out))
		if err != nil || len(ids) == 0 {
			continue
		}
		_ = exec.CommandContext(ctx, "docker", append(verb, ids[pick%len(ids)])...).Run() // the container may not exist any more
		s.book.count("docker " + verb[0] + " by hand")
	}
	return nil
}

// clockEnv is the environment variable that names the file which steps the clock of an agboxd built with the tag "faults". The host's clock
// is not changed.
const clockEnv = "AGBOX_FAULT_CLOCK"

// step makes the daemon's clock jump by more than any deadline in its configuration, and back.
func (s *storm) step(ctx context.Context) error {
	r := s.rng(6)
	for wait.For(ctx, between(r, time.Second, 8*time.Second)) == nil {
		by := between(r, 6*time.Hour, 400*time.Hour)
		if r.IntN(3) == 0 {
			by = -by
		}
		if err := s.setClock(by); err != nil {
			return err
		}
		s.book.count("clock steps of " + map[bool]string{true: "hours forward", false: "hours back"}[by > 0])
		_ = wait.For(ctx, between(r, time.Second, 8*time.Second))
		if err := s.setClock(0); err != nil {
			return err
		}
	}
	return s.setClock(0)
}

// setClock replaces the clock file atomically.
func (s *storm) setClock(step time.Duration) error {
	tmp := s.site.clock() + ".tmp"
	if err := os.WriteFile(tmp, fmt.Appendf(nil, `{"step": %q}`, step), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, s.site.clock())
}
