package dnsfilter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/inject"
	"github.com/agbox/agbox/apis/netentry"
	"github.com/agbox/agbox/internal/host/disk"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/internal/wait"
)

// Dir is the directory in which the daemon leaves the policies of sandboxes for the filter. Any number of daemons may share it.
//
//	br-0123456789ab.json    the policy of the sandbox with that bridge; a daemon writes it
//	br-0123456789ab.served  the hash of the policy that the filter answers by; the filter writes it
//	br-0123456789ab.asked   the names that the sandbox asked for; the filter writes it
//	lock                    locked by the filter while it runs
//	running                 the Process of the filter, and locked by it as long as the files *.served are its own
type Dir string

const (
	policySuffix = ".json"
	servedSuffix = ".served"
	lockName     = "lock"
	runningName  = "running"
)

// Policy is what the filter knows of a sandbox. Mode and the fields after it are as in the network policy of the spec.
type Policy struct {
	SandboxID string   `json:"sandbox_id"`
	Bridge    string   `json:"bridge"`
	Mode      string   `json:"mode"`
	Allow     []string `json:"allow,omitempty"`
	Deny      []string `json:"deny,omitempty"`
	// VerifyNames: connections to addresses of names come to the filter's port.
	VerifyNames bool    `json:"verify_names,omitempty"`
	Inject      *Inject `json:"inject,omitempty"`
}

// Inject is what the filter needs to add headers to requests.
type Inject struct {
	// Authority is the authority that the sandbox trusts, with its key: Encode of authority.Authority.
	Authority string     `json:"authority"`
	Headers   []Injected `json:"headers"`
}

// Injected is a header with a secret. Host and Header are as in an InjectRule of the secret with that name, and Value is the path of a file with its value.
type Injected struct {
	Secret string `json:"secret"`
	Host   string `json:"host"`
	Header string `json:"header"`
	Value  string `json:"value"`
}

// PolicyOf returns what the filter has to know of a sandbox whose network policy validate accepts, in a mode that is not empty. in is nil without
// headers to add. filtered is false if names are not filtered: then the filter must not have the policy.
func PolicyOf(sandboxID, bridge, mode string, spec *agboxv1.NetworkSpec, in *Inject) (p Policy, filtered bool, err error) {
	p = Policy{SandboxID: sandboxID, Bridge: bridge, Mode: mode, Allow: spec.GetAllow(), Deny: spec.GetDeny(), VerifyNames: spec.GetVerifyNames(), Inject: in}
	injected, err := p.headers()
	if err == nil {
		_, filtered, err = p.names(injected)
	}
	return p, filtered, err
}

// header is a parsed Injected.
type header struct {
	rule inject.Rule
	file string // with the value of the secret
	name string // of the secret
}

func (p Policy) headers() (list []header, err error) {
	if p.Inject == nil {
		return nil, nil
	}
	for _, one := range p.Inject.Headers {
		r, err := inject.Parse(one.Secret, &agboxv1.InjectRule{Host: one.Host, Header: one.Header})
		if err != nil {
			return nil, fmt.Errorf("a header for %q: %w", one.Host, err)
		}
		list = append(list, header{rule: r, file: one.Value, name: one.Secret})
	}
	narrowestLast(list)
	return list, nil
}

func (p Policy) names(injected []header) (netrules.Names, bool, error) {
	var hosts []netentry.Entry
	for _, h := range injected {
		hosts = append(hosts, h.rule.Host)
	}
	return netrules.NamesOf(p.Mode, &agboxv1.NetworkSpec{Mode: p.Mode, Allow: p.Allow, Deny: p.Deny, VerifyNames: p.VerifyNames}, hosts)
}

// Write leaves a policy for the filter, which answers by it within milliseconds. Each call also makes the filter admit again all addresses
// that it knows of names of the policy, so call it after the rules of the bridge were enforced, whether or not the policy is a new one.
func (d Dir) Write(p Policy) error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("write the DNS policy of %s: %w", p.Bridge, err)
	}
	if err := d.replace(p.Bridge+policySuffix, p.encode()); err != nil {
		return fmt.Errorf("write the DNS policy of %s: %w", p.Bridge, err)
	}
	return nil
}

// Remove removes the policy of a bridge, if there is one: the filter answers its sandbox no more.
func (d Dir) Remove(bridge string) error {
	return errors.Join(disk.Remove(d.path(bridge+policySuffix)), disk.Remove(d.path(bridge+askedSuffix)))
}

// Bridges returns the bridges that have a policy, sorted.
func (d Dir) Bridges() ([]string, error) {
	files, err := os.ReadDir(string(d))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list DNS policies: %w", err)
	}
	var bridges []string
	for _, f := range files {
		if bridge, ok := strings.CutSuffix(f.Name(), policySuffix); ok && !strings.HasPrefix(bridge, ".") {
			bridges = append(bridges, bridge)
		}
	}
	return bridges, nil
}

// Serves reports whether a filter runs and answers by exactly this policy. If not, Write it.
func (d Dir) Serves(p Policy) (bool, error) {
	body, err := os.ReadFile(d.path(p.Bridge + policySuffix))
	if errors.Is(err, os.ErrNotExist) || err == nil && string(body) != string(p.encode()) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the DNS policy of %s: %w", p.Bridge, err)
	}
	served, err := os.ReadFile(d.path(p.Bridge + servedSuffix))
	if errors.Is(err, os.ErrNotExist) || err == nil && string(served) != sum(body) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read which DNS policy of %s is served: %w", p.Bridge, err)
	}
	return d.Running()
}

// Await returns once Serves is true. Error: the end of the context.
func (d Dir) Await(ctx context.Context, p Policy) error {
	for {
		ok, err := d.Serves(p)
		if err == nil && !ok {
			err = wait.For(ctx, awaitRetry)
		}
		if err != nil {
			return fmt.Errorf("wait for the DNS filter of %s: %w", p.Bridge, err)
		}
		if ok {
			return nil
		}
	}
}

const awaitRetry = 5 * time.Millisecond

// Process is a filter that runs.
type Process struct {
	PID int `json:"pid"`
	// Identity is that of its Config.
	Identity string `json:"identity"`
}

// Running reports whether a filter runs.
func (d Dir) Running() (running bool, err error) {
	err = d.ofRunning(func(*os.File) error { running = true; return nil })
	return running, err
}

// Process returns the filter that runs; nil: none does.
func (d Dir) Process() (p *Process, err error) {
	err = d.ofRunning(func(f *os.File) error { p = new(Process); return json.NewDecoder(f).Decode(p) })
	if err != nil {
		return nil, err
	}
	return p, nil
}

// ofRunning calls read with the file of the filter that runs, if one does.
func (d Dir) ofRunning(read func(f *os.File) error) error {
	f, err := os.Open(d.path(runningName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer f.Close() // with the lock
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = read(f)
	}
	if err != nil {
		return fmt.Errorf("find out which DNS filter runs: %w", err)
	}
	return nil
}

// End sends a signal to a filter, if it still runs. Its connections and questions end; what is written about it makes no other process the receiver.
func (d Dir) End(p Process, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("end the DNS filter %d: %w", p.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if now, err := d.Process(); err != nil || now == nil || *now != p { // only now it is known whose descriptor this is
		return err
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end the DNS filter %d: %w", p.PID, err)
	}
	return nil
}

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

// replace writes a file in one step, as a new file also if it has that content. It is not synced: what a power failure leaves is not served,
// so the daemon writes it again.
func (d Dir) replace(name string, body []byte) error {
	tmp, err := os.CreateTemp(string(d), ".tmp-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(body)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), d.path(name))
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// lock waits until no other process has locked a file, and locks it until it is closed. The kernel closes it with the process.
func (d Dir) lock(ctx context.Context, name string) (*os.File, error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of DNS policies: %w", err)
	}
	f, err := os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the DNS filter: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = wait.For(ctx, lockRetry)
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

const lockRetry = 50 * time.Millisecond

func (p Policy) encode() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings alone
	}
	return body
}

func sum(body []byte) string {
	s := sha256.Sum256(body)
	return hex.EncodeToString(s[:])
}
