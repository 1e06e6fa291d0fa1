package e2b

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/wait"
)

var hostCPUs = runtime.NumCPU()

const (
	// cpuWindow is the time over which the use of processors is measured.
	cpuWindow = 200 * time.Millisecond
	// maxLogLines bounds an answer with logs.
	maxLogLines = 1000
	// maxMetricIDs bounds a request for the metrics of several sandboxes.
	maxMetricIDs = 100
)

// metric is what a sandbox uses at one moment, sizes in bytes.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       uint64    `json:"memUsed"`
	MemTotal      uint64    `json:"memTotal"`
	MemCache      uint64    `json:"memCache"`
	DiskUsed      uint64    `json:"diskUsed"`
	DiskTotal     uint64    `json:"diskTotal"`
}

// metrics answers what a sandbox has used in the range of the request, at the times of the samples and now.
func (g *Gateway) metrics(w http.ResponseWriter, r *http.Request, owner string) error {
	start, err := secondsOf(r.URL.Query(), "start")
	if err != nil {
		return err
	}
	end, err := secondsOf(r.URL.Query(), "end")
	if err != nil {
		return err
	}
	sb, err := g.sandbox(r.Context(), owner, r.PathValue("id"))
	if err != nil {
		return err
	}
	found := g.history.between(sb, start, end)
	now := time.Now().Unix()
	if now >= start && (end == 0 || now <= end+1) {
		all, err := g.measure(r.Context(), sb)
		if err != nil {
			return err
		}
		if m, ok := all[sb.GetSandboxId()]; ok {
			found = append(found, m)
		}
	}
	answer(w, http.StatusOK, found)
	return nil
}

// secondsOf reads a time in Unix seconds; 0: there is none.
func secondsOf(query url.Values, name string) (int64, error) {
	text := query.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, failf(http.StatusBadRequest, "%s: %q is not a time in Unix seconds", name, text)
	}
	return n, nil
}

func (g *Gateway) allMetrics(w http.ResponseWriter, r *http.Request, owner string) error {
	ids := strings.FieldsFunc(strings.Join(r.URL.Query()["sandbox_ids"], ","), func(c rune) bool { return c == ',' })
	if len(ids) > maxMetricIDs {
		return failf(http.StatusBadRequest, "sandbox_ids: %d are too many; write %d at most", len(ids), maxMetricIDs)
	}
	var asked []*agboxv1.SandboxHandle
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		sb, err := g.sandbox(r.Context(), owner, id)
		if f, ok := errors.AsType[*failure](err); ok && f.Code == http.StatusNotFound {
			continue
		}
		if err != nil {
			return err
		}
		asked = append(asked, sb)
	}
	all, err := g.measure(r.Context(), asked...)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"sandboxes": all})
	return nil
}

// measure reads what running sandboxes use. Those that do not run are left out.
func (g *Gateway) measure(ctx context.Context, asked ...*agboxv1.SandboxHandle) (map[string]metric, error) {
	found := map[string]metric{}
	var ids []string
	specs := map[string]*agboxv1.CreateSpec{}
	for _, sb := range asked {
		if s := stateOf(sb); s == running || s == frozen {
			ids = append(ids, sb.GetSandboxId())
			specs[sb.GetSandboxId()] = sb.GetSpec()
		}
	}
	if len(ids) == 0 {
		return found, nil
	}
	before, err := g.api.Stats(ctx, ids...)
	if client.IsNotFound(err) {
		return found, nil // one was deleted meanwhile
	}
	if err != nil {
		return nil, err
	}
	if err := wait.For(ctx, cpuWindow); err != nil {
		return nil, err
	}
	after, err := g.api.Stats(ctx, ids...)
	if client.IsNotFound(err) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	was, now := samplesOf(before), samplesOf(after)
	for id, last := range now {
		if first, ok := was[id]; ok && last.at.After(first.at) {
			found[id] = metricOf(specs[id], first, last)
		}
	}
	return found, nil
}

// metricOf is the use of a sandbox at the second sample, and of processors since the first.
func metricOf(spec *agboxv1.CreateSpec, first, last sample) metric {
	used, window := last.cpu-first.cpu, last.at.Sub(first.at)
	return metric{
		Timestamp: last.at, TimestampUnix: last.at.Unix(), CPUCount: cpus(spec), CPUUsedPct: 100 * max(used.Seconds(), 0) / window.Seconds(),
		MemUsed: last.memory, MemTotal: cmp.Or(last.limit, uint64(hostMemory())), //nolint:gosec // never negative
	}
}

// samplesOf returns the samples of a reading by sandbox ID.
func samplesOf(read *agboxv1.GetStatsResponse) map[string]sample {
	found := map[string]sample{}
	for _, sb := range read.GetSandboxes() {
		if c := primary(sb); c != nil {
			found[sb.GetSandboxId()] = sample{read.GetReadAt().AsTime(), c.GetCpuTime().AsDuration(), c.GetMemoryBytes(), c.GetMemoryLimitBytes()}
		}
	}
	return found
}

func primary(s *agboxv1.SandboxStats) *agboxv1.ContainerStats {
	for _, c := range s.GetContainers() {
		if c.GetServiceName() == "" {
			return c
		}
	}
	return nil
}

// logEntry is an event of a sandbox.
type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

func (g *Gateway) logs(w http.ResponseWriter, r *http.Request, owner string) error {
	entries, err := g.logEntries(r, owner)
	if err != nil {
		return err
	}
	type line struct {
		Timestamp time.Time `json:"timestamp"`
		Line      string    `json:"line"`
	}
	lines := make([]line, len(entries))
	for i, e := range entries {
		lines[i] = line{e.Timestamp, e.Message}
	}
	answer(w, http.StatusOK, map[string]any{"logs": lines, "logEntries": entries})
	return nil
}

func (g *Gateway) logsV2(w http.ResponseWriter, r *http.Request, owner string) error {
	entries, err := g.logEntries(r, owner)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"logs": entries})
	return nil
}

// logEntries returns the newest events of a sandbox, oldest first, at most maxLogLines.
func (g *Gateway) logEntries(r *http.Request, owner string) ([]logEntry, error) {
	sb, err := g.sandbox(r.Context(), owner, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	limit := maxLogLines
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, failf(http.StatusBadRequest, "limit: %q is out of range; write 1 to %d", text, maxLogLines)
		}
		limit = min(n, maxLogLines)
	}
	entries := []logEntry{}
	for e, err := range g.api.Events(r.Context(), sb.GetSandboxId(), client.EventOptions{}) {
		if err != nil {
			return nil, err
		}
		if entries = append(entries, entryOf(e)); len(entries) >= 2*limit {
			entries = slices.Delete(entries, 0, len(entries)-limit)
		}
		if e.GetSequence() >= sb.GetLastEventSequence() {
			break
		}
	}
	return entries[max(len(entries)-limit, 0):], nil
}

func entryOf(e *agboxv1.SandboxEvent) logEntry {
	entry := logEntry{Timestamp: e.GetOccurredAt().AsTime(), Level: "info", Message: enum.Word(e.GetEventType()), Fields: map[string]string{}}
	failure := e.GetSandboxPhase().GetErrorMessage()
	if reason := e.GetSandboxPhase().GetReason(); reason != "" {
		entry.Message += " (" + reason + ")"
	}
	if exec := e.GetExec(); exec != nil {
		entry.Fields["exec_id"] = exec.GetExecId()
		failure = exec.GetErrorMessage()
		if command := exec.GetCommand(); len(command) > 0 {
			entry.Message += " " + strings.Join(command, " ")
		}
	}
	if failure != "" {
		entry.Level = "error"
		entry.Message += ": " + failure
	}
	return entry
}
