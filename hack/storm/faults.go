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
	"syscall"
	"time"

	"github.com/agbox/agbox/internal/host/naming"
)

var discard = log.New(io.Discard, "", 0)

// The kinds of faults.
const (
	faultKill    = "kill"    // kill -9 of the daemon
	faultProxy   = "proxy"   // the engine's answers
	faultENOSPC  = "enospc"  // the disk of the data directory fills up
	faultOOM     = "oom"     // programs that want more memory than their sandbox has
	faultClock   = "clock"   // the daemon's clock jumps
	faultOutside = "outside" // containers are killed and stopped by hand
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

// storm is one run.
type storm struct {
	seed   uint64
	faults []string
	site   *site
	daemon *daemon
	proxy  *proxy
	book   *book
}

func (s *storm) has(fault string) bool { return slices.Contains(s.faults, fault) }

// rng gives each loop numbers of its own: a schedule that depends on the seed alone.
func (s *storm) rng(n uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, n)) }

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// kills ends the daemon at random moments, and looks whether it ended by itself.
func (s *storm) kills(ctx context.Context) error {
	r := s.rng(2)
	for pause(ctx, between(r, 300*time.Millisecond, 6*time.Second)) {
		if err := s.daemon.kill(between(r, 0, time.Second)); err != nil {
			return err
		}
		s.book.count("kill -9 of the daemon")
	}
	return nil
}

// watch starts a daemon that has ended by itself. On a full disk it may; otherwise it is a violation.
func (s *storm) watch(ctx context.Context) error {
	for pause(ctx, 500*time.Millisecond) {
		ended, err := s.daemon.ensure()
		if err != nil {
			return err
		}
		if !ended {
			continue
		}
		s.book.count("ends of the daemon by itself")
		if !s.has(faultENOSPC) {
			s.book.problem("the daemon ended by itself; its log says why")
		}
	}
	return nil
}

// lie changes what the proxy does.
func (s *storm) lie(ctx context.Context) error {
	r := s.rng(3)
	for pause(ctx, between(r, 500*time.Millisecond, 4*time.Second)) {
		s.proxy.set(lies[r.IntN(len(lies))])
		if !pause(ctx, between(r, 300*time.Millisecond, 4*time.Second)) {
			break
		}
		s.proxy.set(honest)
	}
	s.proxy.set(honest)
	return nil
}

// fill takes the room on the data directory's file system, and gives it back.
func (s *storm) fill(ctx context.Context) error {
	r := s.rng(4)
	path := filepath.Join(s.site.data(), "filler")
	for pause(ctx, between(r, 3*time.Second, 15*time.Second)) {
		s.book.count("disk filled")
		if err := fillUp(path); err != nil {
			return err
		}
		pause(ctx, between(r, time.Second, 6*time.Second))
		if err := os.Remove(path); err != nil {
			return err
		}
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

// interfere does by hand what users of the host do.
func (s *storm) interfere(ctx context.Context) error {
	r := s.rng(5)
	verbs := [][]string{{"kill"}, {"stop", "-t", "1"}, {"pause"}, {"rm", "-f"}}
	for pause(ctx, between(r, 2*time.Second, 10*time.Second)) {
		verb, pick := verbs[r.IntN(len(verbs))], r.IntN(1<<16)
		out, err := exec.CommandContext(ctx, "docker", "ps", "-q", "--filter", "label="+naming.Instance+"="+s.site.instance()).Output()
		ids := strings.Fields(string(out))
		if err != nil || len(ids) == 0 {
			continue
		}
		_ = exec.CommandContext(ctx, "docker", append(verb, ids[pick%len(ids)])...).Run() // it may not exist any more
		s.book.count("docker " + verb[0] + " by hand")
	}
	return nil
}

// clockEnv names the file that steps the clock of an agboxd built with the tag "faults"; the host's clock is never touched.
const clockEnv = "AGBOX_FAULT_CLOCK"

// step lets the daemon's clock jump, by more than any deadline that its configuration has, and come back.
func (s *storm) step(ctx context.Context) error {
	r := s.rng(6)
	for pause(ctx, between(r, time.Second, 8*time.Second)) {
		by := between(r, 6*time.Hour, 400*time.Hour)
		if r.IntN(3) == 0 {
			by = -by
		}
		if err := s.setClock(by); err != nil {
			return err
		}
		s.book.count("clock steps of " + map[bool]string{true: "hours forward", false: "hours back"}[by > 0])
		pause(ctx, between(r, time.Second, 8*time.Second))
		if err := s.setClock(0); err != nil {
			return err
		}
	}
	return s.setClock(0)
}

// setClock puts a whole file into place.
func (s *storm) setClock(step time.Duration) error {
	tmp := s.site.clock() + ".tmp"
	if err := os.WriteFile(tmp, fmt.Appendf(nil, `{"step": %q}`, step), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, s.site.clock())
}
