package dnsfilter

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/agbox/agbox/internal/host/authority"
	"github.com/agbox/agbox/internal/host/disk"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/host/nameproxy"
	"github.com/agbox/agbox/internal/netrules"
)

// rules are what one version of a policy says.
type rules struct {
	sandboxID string
	names     netrules.Names
	// verify: connections that come here have to ask for names that the policy has. Otherwise they may be of any kind.
	verify    bool
	headers   []header
	authority *authority.Authority // nil without headers
}

// sandbox answers the questions of one sandbox.
type sandbox struct {
	f      *filter
	bridge string
	rules  atomic.Pointer[rules] // nil: there is no valid policy
	rate   *rate.Limiter
	// inFlight, conns and passed are slots: of questions, of connections of DNS, and of others.
	inFlight, conns, passed chan struct{}
	// injected is the memory for connections to whose requests headers are added.
	injected *nameproxy.Share

	// Of the goroutine of Run alone: the version of the file, its hash, the hash that was acknowledged, the bridge that is listened on and
	// the end of that.
	stamp             stamp
	sum, acknowledged string
	index             int
	stop              context.CancelFunc
	complaint         string // the last one that was logged
	askedAt           time.Time

	asked askedNames

	mu    sync.Mutex // also held while addresses are admitted, so that no older time replaces a newer one
	known map[resolved]time.Time
	// unsettled: addresses that are known may be in none of the sets.
	unsettled bool
	pruned    time.Time
}

// resolved is an address that a name was seen to have.
type resolved struct {
	name string
	addr netip.Addr
}

func newSandbox(f *filter, bridge string) *sandbox {
	l := f.Limits
	return &sandbox{
		f: f, bridge: bridge, rate: rate.NewLimiter(rate.Limit(l.SandboxRate), l.SandboxRate), known: map[resolved]time.Time{},
		inFlight: make(chan struct{}, l.SandboxInFlight), conns: make(chan struct{}, l.SandboxConns),
		passed: make(chan struct{}, l.SandboxPassed), injected: f.injected.Share(),
	}
}

// replace puts a policy into force, and forgets the addresses of names that it does not let through.
func (s *sandbox) replace(r *rules) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules.Store(r)
	for k := range s.known {
		if _, ok := r.names.Answers(k.name); !ok {
			delete(s.known, k)
		}
	}
	s.unsettled = len(s.known) > 0
}

// settle admits the known addresses, if they may be in none of the sets. done: none is left to do.
func (s *sandbox) settle() (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rules.Load()
	if !s.unsettled || r == nil {
		return true, nil
	}
	now := time.Now()
	var list []firewall.Admission
	for k, until := range s.known {
		if !until.After(now) {
			continue
		}
		sets, _ := r.names.Answers(k.name)
		list = append(list, admissions(sets, k.addr, until.Sub(now))...)
	}
	for some := range slices.Chunk(list, admittedAtOnce) {
		if err := s.f.Admit(s.bridge, some); err != nil {
			if errors.Is(err, firewall.ErrNoSet) {
				err = nil // the rules follow
			}
			return false, err
		}
	}
	s.unsettled = false
	return true, nil
}

// admittedAtOnce bounds a change of the packet filter.
const admittedAtOnce = 2000

func admissions(sets []string, a netip.Addr, d time.Duration) (list []firewall.Admission) {
	for _, id := range sets {
		list = append(list, firewall.Admission{Names: id, Addr: a, For: d})
	}
	return list
}

// errFull is the error of a sandbox that has all the addresses that it may have.
var errFull = errors.New("the sandbox has too many addresses")

// admit opens the addresses of a name for a time, or for longer if an earlier answer said so.
func (s *sandbox) admit(sets []string, name string, addrs []netip.Addr, d time.Duration) error {
	if len(sets) == 0 || len(addrs) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	until := now.Add(d)
	more := 0
	for _, a := range addrs {
		if _, ok := s.known[resolved{name, a}]; !ok {
			more++
		}
	}
	if !s.hasRoom(now, len(sets), more) {
		return errFull
	}
	var list []firewall.Admission
	for _, a := range addrs {
		k := resolved{name, a}
		if s.known[k].Before(until) {
			s.known[k] = until
		}
		list = append(list, admissions(sets, a, s.known[k].Sub(now))...)
	}
	return s.f.Admit(s.bridge, list)
}

// hasRoom reports whether some more addresses fit. It forgets those that have timed out, at most once in a second.
func (s *sandbox) hasRoom(now time.Time, sets, more int) bool {
	limit := s.f.Limits.SandboxAddresses / sets
	if len(s.known)+more > limit && now.Sub(s.pruned) > time.Second {
		s.pruned = now
		for k, until := range s.known {
			if !until.After(now) {
				delete(s.known, k)
			}
		}
	}
	return len(s.known)+more <= limit
}

// close stops to listen, and takes back that the policy is served.
func (s *sandbox) close() {
	if s.acknowledged != "" {
		if err := disk.Remove(s.f.Dir.path(s.bridge + servedSuffix)); err != nil {
			s.f.Log.Error("a policy seems to be served and is not", "bridge", s.bridge, "err", err)
		}
	}
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	s.index, s.acknowledged = 0, ""
}

// complain logs an error of a pass that is tried again, once.
func (s *sandbox) complain(what string, err error) {
	if s.complaint != what+err.Error() {
		s.complaint = what + err.Error()
		s.f.Log.Error(what, "bridge", s.bridge, "err", err)
	}
}

// hears reports whether the sandbox's questions are listened to.
func (s *sandbox) hears() bool { return s.stop != nil }
