package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// Site has the paths and addresses of one daemon's state. All paths are absolute.
type Site struct {
	// RunRoot and LogRoot contain a directory per sandbox: RunRoot with requests, LogRoot with logs and journals.
	RunRoot, LogRoot string
	// TxLog is the directory of the log of the database.
	TxLog string
	// Engine is "unix:///path" or "tcp://host:port"; empty: unix:///var/run/docker.sock.
	Engine string
	// Ledger is a directory in which test programs record their starts and ends, one file per sandbox; empty: none.
	Ledger string
	// packets reads the packet filter; nil: that of the network namespace of the auditor's process.
	packets func() *packets
	// ScratchDir is the directory for the temporary copy of the database. Empty: the system's.
	ScratchDir string
}

// Source writes a consistent copy of the database to f, and reports whether a daemon is running. If so, Run waits until
// its unfinished work is done.
type Source func(ctx context.Context, f *os.File) (running bool, err error)

// Options bound an audit. The zero value is usable.
type Options struct {
	// Patience is how long a difference that the daemon may still repair must persist, unchanged, before it is a violation.
	// 0: 10 s. It should exceed the daemon's resync interval.
	Patience time.Duration
	// Interval between two rounds. 0: 2 s.
	Interval time.Duration
}

// Run audits a site, and repeats the audit while there are differences that the daemon may still repair. It changes nothing.
// It does so for a minute and four times o.Patience at most; differences that have neither persisted nor disappeared by then are warnings.
// An error means that the site could not be read; it is not a verdict.
func Run(ctx context.Context, site Site, source Source, o Options) (Report, error) {
	patience, interval := cmp.Or(max(o.Patience, 0), 10*time.Second), cmp.Or(max(o.Interval, 0), 2*time.Second)
	seen := map[string]sighting{}
	start := time.Now()
	for {
		facts, err := gather(ctx, site, source)
		if err != nil {
			return Report{}, err
		}
		now := time.Now()
		r, waiting := settle(judge(facts), seen, now, patience, facts.running)
		r.Counts = facts.counts()
		if !waiting || now.Sub(start) >= time.Minute+4*patience {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return Report{}, context.Cause(ctx)
		case <-time.After(interval):
		}
	}
}

// ofRecords are the invariants that a database shows without the engine and the files, but for I1: damage is for the store to report.
var ofRecords = []string{"I2", "I3", "I4", "I5", "I6", "I20", "I21", "I22"}

// CheckRecords returns the violations that the database at path shows alone. No other process may have it open. Errors: as Run.
func CheckRecords(path string) (violations []Finding, err error) {
	r, err := readRecords(path)
	if err != nil {
		return nil, err
	}
	for _, f := range judge(&facts{at: time.Now(), records: r}) {
		if f.severity == hard && slices.Contains(ofRecords, f.Invariant) {
			violations = append(violations, f)
		}
	}
	return violations, nil
}

// sighting is the time since which a difference has been observed unchanged.
type sighting struct {
	stamp string
	since time.Time
}

// settle classifies the findings of one round. It updates seen: the patience of a difference that disappeared, or whose object has
// changed, starts over. waiting reports that a difference may still become a violation.
func settle(found []Finding, seen map[string]sighting, now time.Time, patience time.Duration, running bool) (r Report, waiting bool) {
	present := map[string]bool{}
	for _, f := range found {
		switch {
		case f.severity == note:
			r.Warnings = append(r.Warnings, f)
			continue
		case f.severity == hard:
			r.Violations = append(r.Violations, f)
			continue
		case !running: // the next start may repair it; an audit after the start decides
			r.Warnings = append(r.Warnings, f)
			continue
		}
		present[f.key] = true
		s, ok := seen[f.key]
		if !ok || s.stamp != f.stamp {
			s = sighting{f.stamp, now}
			seen[f.key] = s
		}
		if now.Sub(s.since) >= patience {
			r.Violations = append(r.Violations, f)
			continue
		}
		r.Warnings = append(r.Warnings, f)
		waiting = true
	}
	maps.DeleteFunc(seen, func(key string, _ sighting) bool { return !present[key] })
	return r, waiting
}

// facts is the data of one round.
type facts struct {
	at      time.Time
	running bool
	boot    string // of the host
	records *records
	world   world
	packets *packets // nil: they are not looked at
	files   files
	ledger  map[string]ledgerEntry
}

// gather reads the database first: the engine and the files may then be newer, never older.
func gather(ctx context.Context, site Site, source Source) (*facts, error) {
	f, err := os.CreateTemp(site.ScratchDir, "agbox-audit-*.db")
	if err != nil {
		return nil, fmt.Errorf("create a temporary file for the copy of the database: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	running, err := source(ctx, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("copy the database: %w", err)
	}
	l := &facts{at: time.Now(), running: running}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		l.boot = strings.TrimSpace(string(boot))
	}
	if l.records, err = readRecords(f.Name()); err != nil {
		return nil, fmt.Errorf("read the copy of the database: %w", err)
	}
	if l.world, err = listWorld(ctx, site.Engine, l.records.instances()); err != nil {
		return nil, fmt.Errorf("list the engine's objects: %w", err)
	}
	read := site.packets
	if read == nil {
		read = readPackets
	}
	l.packets = read()
	if l.files, err = readFiles(site); err != nil {
		return nil, fmt.Errorf("read the state directory: %w", err)
	}
	if l.files.log, err = replayLog(site.TxLog, l.records.txid); err != nil {
		return nil, fmt.Errorf("read the log of the database: %w", err)
	}
	if l.ledger, err = readLedger(site.Ledger); err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	return l, ctx.Err()
}
