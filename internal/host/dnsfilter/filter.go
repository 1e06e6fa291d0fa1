// Package dnsfilter answers the questions of DNS of sandboxes whose network policies name domains. It refuses the names that a policy does
// not let through, asks upstream servers for the others, and opens the sandbox's packet filter for the addresses before it answers. Where a
// policy verifies names, connections to these addresses are redirected to it, too, and it passes them on if they ask for a name; see nameproxy.
//
// The rules of such a policy redirect every question that crosses the sandbox's bridge to the filter's port. It has sockets of its own for
// each bridge, bound to that interface: whoever asks there is the sandbox, whatever address it writes into its packets; nothing else on the
// network reaches them; and a flood fills the buffer of its own sandbox alone. While no filter runs, the port refuses packets, so no name
// resolves and no new address is opened. Addresses that are known stay open until they time out: the kernel has them.
package dnsfilter

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/disk"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/host/inotify"
	"github.com/agbox/agbox/internal/host/nameproxy"
	"github.com/agbox/agbox/internal/netrules"
)

// DefaultPort is the port that rules redirect questions to: below those that the kernel gives to connections.
const DefaultPort = 10053

// Config is what a filter needs.
type Config struct {
	Dir Dir
	// Identity says what this filter is, such as its release and settings, for Dir.Process.
	Identity string
	// Port is the port that the rules redirect questions to.
	Port uint16
	// Upstreams returns the servers to ask, the first one first. It is called for each question.
	Upstreams func() []netip.AddrPort
	// Admit opens addresses: Admit of a firewall.
	Admit func(bridge string, list []firewall.Admission) error
	// Roots verify the servers to whose requests headers are added; nil: those of this host.
	Roots *x509.CertPool
	// Report receives refused questions, from one goroutine. nil: they are not reported.
	Report func([]Refusal)
	Log    *slog.Logger
	Limits Limits
}

// Limits are the bounds of a filter; the zero value of each is its default.
type Limits struct {
	// InFlight and SandboxInFlight bound the questions that wait for an upstream server, of all sandboxes and of each.
	InFlight, SandboxInFlight int
	// SandboxRate bounds the questions of a sandbox in a second. Those beyond wait in the socket's buffer.
	SandboxRate int
	// SandboxConns bounds the TCP connections of a sandbox that ask for names; Passed and SandboxPassed those that are passed on to servers, of
	// all sandboxes and of each. By default Passed leaves half of the process's descriptors to questions.
	SandboxConns, Passed, SandboxPassed int
	// InjectedBytes and SandboxInjectedBytes bound the memory that connections can take to whose requests headers are added, of all sandboxes and of each.
	InjectedBytes, SandboxInjectedBytes int64
	// SandboxAddresses bounds the addresses of names that are open for a sandbox, those of a port counted apart; AnswerAddresses those of
	// one answer: the others are left out.
	SandboxAddresses, AnswerAddresses int
	// Deadline bounds the time for an answer, Try that of one upstream server. The engine's own server waits 4 s.
	Deadline, Try time.Duration
	// Floor is how long an address is open at least: programs keep addresses for longer than DNS says. Ceiling bounds the time for which an
	// answer says that it may be kept.
	Floor, Ceiling time.Duration
	// ReportEvery is the time between two reports, and ReportNames the number of names of one sandbox in a report.
	ReportEvery time.Duration
	ReportNames int
}

func (l Limits) withDefaults() Limits {
	return Limits{
		InFlight: cmp.Or(l.InFlight, 1024), SandboxInFlight: cmp.Or(l.SandboxInFlight, 64),
		SandboxRate: cmp.Or(l.SandboxRate, 500), SandboxConns: cmp.Or(l.SandboxConns, 32), Passed: cmp.Or(l.Passed, mostPassed()), SandboxPassed: cmp.Or(l.SandboxPassed, 1024),
		InjectedBytes: cmp.Or(l.InjectedBytes, 512<<20), SandboxInjectedBytes: cmp.Or(l.SandboxInjectedBytes, 128<<20),
		SandboxAddresses: cmp.Or(l.SandboxAddresses, 1<<16), AnswerAddresses: cmp.Or(l.AnswerAddresses, 1000),
		Deadline: cmp.Or(l.Deadline, 3500*time.Millisecond), Try: cmp.Or(l.Try, time.Second),
		Floor: cmp.Or(l.Floor, 10*time.Minute), Ceiling: cmp.Or(l.Ceiling, time.Hour),
		ReportEvery: cmp.Or(l.ReportEvery, 5*time.Second), ReportNames: cmp.Or(l.ReportNames, 20),
	}
}

// perPassed is how many descriptors a connection that is passed on needs: two sockets, and two pipes.
const perPassed = 6

func mostPassed() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		files.Cur = 1024
	}
	return int(min(files.Cur, 1<<20)) / 2 / perPassed //nolint:gosec // bounded
}

// filter is a running filter.
type filter struct {
	Config
	upstreams upstreams
	host      hostAddrs
	refusals  refusals
	inFlight  chan struct{}
	passed    chan struct{}
	injected  *nameproxy.Budget
	sandboxes map[string]*sandbox // by bridge
}

// Run answers until ctx ends. If another filter has the directory, it waits for the end of that one. Errors: the directory cannot be used.
func Run(ctx context.Context, c Config) error {
	c.Limits = c.Limits.withDefaults()
	lock, err := c.Dir.lock(ctx, lockName)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	f := &filter{
		Config: c, inFlight: make(chan struct{}, c.Limits.InFlight), passed: make(chan struct{}, c.Limits.Passed), injected: nameproxy.NewBudget(c.Limits.InjectedBytes, c.Limits.SandboxInjectedBytes),
		sandboxes: map[string]*sandbox{},
	}
	f.upstreams = upstreams{list: c.Upstreams, try: c.Limits.Try}
	f.refusals.names = c.Limits.ReportNames
	if err := f.forgetServed(); err != nil {
		return err
	}
	// Whoever finds the file locked finds in it who has locked it.
	self, err := json.Marshal(Process{os.Getpid(), c.Identity})
	if err != nil {
		return fmt.Errorf("encode who filters: %w", err)
	}
	if err := os.WriteFile(c.Dir.path(runningName), self, 0o600); err != nil {
		c.Log.Error("no daemon can replace this filter", "err", err) // a full disk: the file is empty then, and names are answered
	}
	running, err := c.Dir.lock(ctx, runningName) // a daemon that looks whether it is locked has it for a moment
	if err != nil {
		return err
	}
	defer running.Close()
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for _, s := range f.sandboxes {
			s.close()
		}
		all.Wait()
	}()
	changed := make(chan struct{}, 1)
	all.Go(func() { f.watch(ctx, changed) })
	all.Go(func() { f.report(ctx) })
	ticks := time.NewTicker(rescan)
	defer ticks.Stop()
	for {
		again := f.scan(ctx)
		if again {
			ticks.Reset(retry)
		} else {
			ticks.Reset(rescan)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticks.C:
		}
	}
}

// rescan is how soon a bridge that the engine made again is served, and a policy of which no event came. retry is the pause until the sets
// of a policy are looked for again.
const (
	rescan = time.Second
	retry  = 100 * time.Millisecond
)

// forgetServed removes what a former filter has said that it serves.
func (f *filter) forgetServed() error {
	files, err := os.ReadDir(string(f.Dir))
	if err != nil {
		return fmt.Errorf("list DNS policies: %w", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file.Name(), servedSuffix) {
			if err := os.Remove(f.Dir.path(file.Name())); err != nil {
				return fmt.Errorf("forget what a former filter served: %w", err)
			}
		}
	}
	return nil
}

// watch signals changes of the directory. Without inotify they are seen by the next rescan.
func (f *filter) watch(ctx context.Context, changed chan<- struct{}) {
	fd, err := inotify.Open()
	if err != nil {
		f.Log.Warn("DNS policies are seen late", "err", err)
		return
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer context.AfterFunc(ctx, func() { _ = events.Close() })()
	defer func() { _ = events.Close() }()
	if _, err := unix.InotifyAddWatch(fd, string(f.Dir), unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
		f.Log.Warn("DNS policies are seen late", "err", err)
		return
	}
	b := make([]byte, 64<<10)
	for {
		n, err := events.Read(b)
		if err != nil {
			return
		}
		for ev := range inotify.Events(b[:n]) {
			if strings.HasSuffix(ev.Name, policySuffix) || ev.Watch < 0 {
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		}
	}
}

// stamp tells one version of a file from the next.
type stamp struct {
	time  time.Time
	inode uint64
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{time: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = st.Ino
	}
	return s
}

// scan makes the sandboxes follow the directory and the bridges. again: something is missing that may come soon.
func (f *filter) scan(ctx context.Context) (again bool) {
	bridges, err := f.Dir.Bridges()
	if err != nil {
		f.Log.Error("DNS policies stay as they are", "err", err)
		return true
	}
	seen, indexes := map[string]bool{}, map[string]int{}
	if len(bridges) > 0 {
		all, err := net.Interfaces()
		if err != nil {
			f.Log.Error("DNS policies stay as they are", "err", err)
			return true
		}
		for _, one := range all {
			indexes[one.Name] = one.Index
		}
	}
	for _, bridge := range bridges {
		seen[bridge] = true
		again = f.follow(ctx, bridge, indexes[bridge]) || again
	}
	for bridge, s := range f.sandboxes {
		if !seen[bridge] {
			s.close()
			if err := disk.Remove(f.Dir.path(bridge + askedSuffix)); err != nil { // written after the removal of the policy
				f.Log.Error("the names that a sandbox asked for are left", "bridge", bridge, "err", err)
			}
			delete(f.sandboxes, bridge)
		}
	}
	return again
}

// follow makes one sandbox follow its file and its bridge, which has an index, or 0 while it does not exist.
func (f *filter) follow(ctx context.Context, bridge string, index int) (again bool) {
	info, err := os.Stat(f.Dir.path(bridge + policySuffix))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	s := f.sandboxes[bridge]
	if s == nil {
		s = newSandbox(f, bridge)
		if list, err := f.Dir.Asked(bridge); err == nil {
			s.asked.load(list)
		}
		f.sandboxes[bridge] = s
	}
	if now := stampOf(info); s.stamp != now {
		s.stamp = now
		if err := f.load(s); err != nil {
			f.Log.Error("names of a sandbox are refused", "bridge", bridge, "err", err)
			s.rules.Store(nil)
			s.close()
			return false
		}
	}
	s.writeAsked()
	if s.rules.Load() == nil {
		return false
	}
	if err := s.listen(ctx, index); err != nil {
		s.complain("questions of a sandbox are not heard", err)
		return true
	}
	settled, err := s.settle()
	if err != nil {
		s.complain("known addresses of a sandbox are not open", err)
	} else {
		s.complaint = ""
	}
	if s.hears() && s.acknowledged != s.sum {
		if err := f.Dir.replace(bridge+servedSuffix, []byte(s.sum)); err != nil {
			f.Log.Error("cannot say that names of a sandbox are answered", "bridge", bridge, "err", err)
			return true
		}
		s.acknowledged = s.sum
	}
	return !settled
}

// load reads the policy of a sandbox. Questions meet the former one or the new one.
func (f *filter) load(s *sandbox) error {
	body, err := os.ReadFile(f.Dir.path(s.bridge + policySuffix))
	if err != nil {
		return err
	}
	var p Policy
	if err := json.Unmarshal(body, &p); err != nil {
		return fmt.Errorf("decode the policy: %w", err)
	}
	if p.Bridge != s.bridge {
		return fmt.Errorf("the policy is of the bridge %q", p.Bridge)
	}
	r := &rules{sandboxID: p.SandboxID, verify: p.VerifyNames || p.Mode == netrules.Internal}
	if r.headers, err = p.headers(); err != nil {
		return err
	}
	var filtered bool
	if r.names, filtered, err = p.names(r.headers); err != nil {
		return err
	}
	if !filtered {
		return errors.New("the policy names no domains")
	}
	if p.Inject != nil {
		if r.authority, err = s.authorityOf(p.Inject.Authority); err != nil {
			return err
		}
	}
	s.sum = sum(body)
	s.replace(r)
	return nil
}

// hostAddrs are the addresses of the host, read again after a while.
type hostAddrs struct {
	mu    sync.Mutex
	until time.Time
	known map[netip.Addr]bool
}

const hostAddrsFor = 5 * time.Second

func (h *hostAddrs) has(a netip.Addr) bool {
	a = a.Unmap() // whoever connects to an address of IPv4 in IPv6's form reaches that one
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.After(h.until) {
		all, err := net.InterfaceAddrs()
		if err != nil {
			return true // it may be one
		}
		h.until, h.known = now.Add(hostAddrsFor), map[netip.Addr]bool{}
		for _, one := range all {
			if p, err := netip.ParsePrefix(one.String()); err == nil {
				h.known[p.Addr().Unmap()] = true
			}
		}
	}
	return a.IsLoopback() || a.IsUnspecified() || h.known[a]
}
