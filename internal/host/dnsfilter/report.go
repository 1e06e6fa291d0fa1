package dnsfilter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Reason is why a question was refused.
type Reason string

// The reasons.
const (
	ReasonName    Reason = "name"    // the policy does not let the name through
	ReasonAddress Reason = "address" // the name has addresses that the policy does not let through
	ReasonFull    Reason = "full"    // the sandbox has all the addresses that it may have
	ReasonAsked   Reason = "asked"   // a connection asked a server for the name, or for none: then it is the server's address
)

// Refusal is a line about refused questions.
type Refusal struct {
	SandboxID string `json:"sandbox_id"`
	// Name is empty in the line about all names beyond the bound.
	Name   string    `json:"name,omitempty"`
	Reason Reason    `json:"reason"`
	Count  uint64    `json:"count"`
	Time   time.Time `json:"time"` // of the last one
}

// refusals counts questions until they are reported, in bounded memory.
type refusals struct {
	names  int // of each sandbox
	mu     sync.Mutex
	counts map[string]map[refused]*Refusal // by sandbox
}

type refused struct {
	name string
	why  Reason
}

func (r *refusals) add(sandboxID, name string, why Reason, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]map[refused]*Refusal{}
	}
	of := r.counts[sandboxID]
	if of == nil {
		of = map[refused]*Refusal{}
		r.counts[sandboxID] = of
	}
	k := refused{name, why}
	if of[k] == nil && len(of) >= r.names {
		k.name = ""
	}
	if of[k] == nil {
		of[k] = &Refusal{SandboxID: sandboxID, Name: k.name, Reason: why}
	}
	of[k].Count++
	of[k].Time = now
}

// take returns what was counted since the last call.
func (r *refusals) take() (list []Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.counts {
		for _, one := range of {
			list = append(list, *one)
		}
	}
	r.counts = nil
	return list
}

// report passes refusals on until ctx ends.
func (f *filter) report(ctx context.Context) {
	if f.Report == nil {
		return
	}
	ticks := time.NewTicker(f.Limits.ReportEvery)
	defer ticks.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
		if list := f.refusals.take(); len(list) > 0 {
			f.Report(list)
		}
	}
}

// maxReport is the size of a file of refusals, in bytes, at which a new one is begun.
const maxReport = 1 << 20

// ReportTo returns a function that appends refusals to a file, one JSON object a line. A full file is renamed to path.1 and replaced.
func ReportTo(path string, failed func(error)) func([]Refusal) {
	return func(list []Refusal) {
		if err := appendTo(path, list); err != nil {
			failed(err)
		}
	}
}

func appendTo(path string, list []Refusal) error {
	if info, err := os.Stat(path); err == nil && info.Size() > maxReport {
		if err := os.Rename(path, path+".1"); err != nil {
			return fmt.Errorf("report refused names: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("report refused names: %w", err)
	}
	var lines []byte
	for _, one := range list {
		line, err := json.Marshal(one)
		if err != nil {
			return errors.Join(err, f.Close())
		}
		lines = append(append(lines, line...), '\n')
	}
	_, err = f.Write(lines)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("report refused names: %w", err)
	}
	return nil
}

// ReportReader reads the lines that ReportTo writes, across replacements of the file. One goroutine at a time may use it.
type ReportReader struct {
	path string
	file *os.File
	rest []byte // of a line that is being written
}

// NewReportReader returns a reader of the lines that are written from now on.
func NewReportReader(path string) *ReportReader {
	r := &ReportReader{path: path}
	if f, err := os.Open(path); err == nil {
		if _, err := f.Seek(0, io.SeekEnd); err == nil {
			r.file = f
		}
	}
	return r
}

// Next returns the lines since the last call, or since the reader was made. Lines that are none of ours are left out.
func (r *ReportReader) Next() (list []Refusal, err error) {
	for {
		if r.file != nil {
			more, err := io.ReadAll(io.LimitReader(r.file, 2*maxReport))
			if err != nil {
				return list, fmt.Errorf("read refused names: %w", err)
			}
			list = append(list, r.decode(more)...)
		}
		f, err := os.Open(r.path)
		if errors.Is(err, os.ErrNotExist) {
			return list, nil
		}
		if err != nil {
			return list, fmt.Errorf("read refused names: %w", err)
		}
		if r.file != nil && sameFile(r.file, f) {
			return list, f.Close()
		}
		r.Close()
		r.file, r.rest = f, nil
	}
}

// Close closes the file.
func (r *ReportReader) Close() {
	if r.file != nil {
		r.file.Close()
	}
}

func (r *ReportReader) decode(more []byte) (list []Refusal) {
	r.rest = append(r.rest, more...)
	for {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			return list
		}
		var one Refusal
		if json.Unmarshal(line, &one) == nil {
			list = append(list, one)
		}
		r.rest = rest
	}
}

func sameFile(a, b *os.File) bool {
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
