package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
	"github.com/agbox/agbox/internal/wait"
)

const (
	// firstSample is the time over which the CPU is measured for the first table, topEvery that between tables.
	firstSample = time.Second
	topEvery    = 2 * time.Second
)

// top prints what sandboxes use.
type top struct {
	a          *app
	ids        []string // the named sandboxes; empty: all that run
	labels     *selector
	containers bool
	json       bool
	before     *agboxv1.GetStatsResponse
}

func (a *app) topCommand() *cobra.Command {
	t := &top{a: a}
	var form *output
	var watch bool
	cmd := &cobra.Command{
		Use: "top [NAME... | -l SELECTOR]", SuggestFor: []string{"stats", "usage"}, Short: "Show the CPU, memory, processes and I/O of running sandboxes",
		ValidArgsFunction: a.sandboxKind().names,
		Long: `Show what running sandboxes use, all or the named ones. CPU is measured for a second; 100% is one core. MEMORY leaves out file cache
that the kernel can drop. READ and WRITTEN count what reached block devices since the start of the containers. The numbers are the
kernel's: the engine is not asked.`,
		Example: "  agbox top\n  agbox top web --containers\n  agbox top -l team=a -w",
	}
	form = outputFlag(cmd, "json")
	t.labels = a.selectorFlag(cmd, "only those with these labels")
	cmd.Flags().BoolVar(&t.containers, "containers", false, "a line for each container: the primary and the services")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "keep running and show new numbers every two seconds")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		if len(refs) > 0 && t.labels.given() {
			return usagef(cmd, "expected names or -l, not both")
		}
		t.json = form.given()
		found, failed, err := find(cmd.Context(), a, a.sandboxKind(), refs, nil)
		if err != nil {
			return err
		}
		if failed && len(found) == 0 {
			return &exitError{code: exitFailed}
		}
		for _, sb := range found {
			t.ids = append(t.ids, sb.GetSandboxId())
		}
		if err := t.run(cmd.Context(), watch); err != nil {
			return err
		}
		return outcomeOf(cmd.Context(), failed)
	}
	return cmd
}

// run prints once, or until ctx ends. A watch survives a restart of the daemon.
func (t *top) run(ctx context.Context, watch bool) (err error) {
	if t.before, err = t.read(ctx); err != nil {
		return err
	}
	pause := firstSample
	for {
		if err := wait.For(ctx, pause); err != nil {
			return err
		}
		pause = topEvery
		now, err := t.read(ctx)
		switch {
		case watch && client.IsUnavailable(err) && ctx.Err() == nil:
			t.a.notes.say("agboxd does not answer; the watch continues when it answers again")
			continue
		case err != nil:
			return err
		}
		t.a.notes.clear()
		if watch && !t.json && isTerminal(t.a.Out) {
			fmt.Fprint(termsafe.Unfiltered(t.a.Out), "\x1b[H\x1b[J") // the screen, from its start
		}
		if err := t.print(now); err != nil || !watch {
			return err
		}
		t.before = now
	}
}

// read returns the stats of the chosen sandboxes.
func (t *top) read(ctx context.Context) (*agboxv1.GetStatsResponse, error) {
	resp, err := t.a.conn().Stats(ctx, t.ids...)
	if err != nil || !t.labels.given() {
		return resp, err
	}
	selected, err := t.a.sandboxKind().selected(ctx, t.labels)
	resp.Sandboxes = slices.DeleteFunc(resp.GetSandboxes(), func(s *agboxv1.SandboxStats) bool {
		return !slices.ContainsFunc(selected, func(sb *agboxv1.SandboxHandle) bool { return sb.GetSandboxId() == s.GetSandboxId() })
	})
	return resp, err
}

// topRow is what a sandbox or one of its containers uses.
type topRow struct {
	SandboxID string `json:"sandbox_id"`
	Name      string `json:"name,omitempty"`
	State     string `json:"state"`
	// Service is of containers only; the primary's is empty.
	Service *string `json:"service_name,omitempty"`
	// CPUPercent is nil without an earlier measurement.
	CPUPercent *float64 `json:"cpu_percent,omitempty"`
	CPUSeconds float64  `json:"cpu_seconds"`
	Memory     uint64   `json:"memory_bytes"`
	// MemoryLimit and PidsLimit are 0 if a container has none.
	MemoryLimit uint64 `json:"memory_limit_bytes"`
	Pids        uint64 `json:"pids"`
	PidsLimit   uint64 `json:"pids_limit"`
	Read        uint64 `json:"io_read_bytes"`
	Written     uint64 `json:"io_written_bytes"`
	running     bool
}

func (t *top) print(now *agboxv1.GetStatsResponse) error {
	if len(now.GetSandboxes()) == 0 {
		fmt.Fprintln(t.a.Err, "no running sandboxes"+textIf(t.labels.given(), " with these labels"))
		return nil
	}
	var rows []topRow
	for _, sb := range now.GetSandboxes() {
		rows = append(rows, t.rows(sb, now.GetReadAt().AsTime().Sub(t.before.GetReadAt().AsTime()))...)
	}
	if t.json {
		return printRows(t.a.Out, rows)
	}
	t.printTable(rows)
	return nil
}

// rows returns one row for a sandbox, or one for each of its containers. since is the time since the measurement before.
func (t *top) rows(sb *agboxv1.SandboxStats, since time.Duration) []topRow {
	row := topRow{SandboxID: sb.GetSandboxId(), Name: sb.GetName(), State: enum.Word(sb.GetState())}
	if len(sb.GetContainers()) == 0 || !t.containers {
		return []topRow{row.with(sb.GetContainers(), t.earlier(sb), since)}
	}
	var rows []topRow
	for _, c := range sb.GetContainers() {
		one := row.with([]*agboxv1.ContainerStats{c}, t.earlier(sb), since)
		name := c.GetServiceName()
		one.Service = &name
		rows = append(rows, one)
	}
	return rows
}

// earlier returns the CPU time of the containers of a sandbox at the measurement before, by service.
func (t *top) earlier(sb *agboxv1.SandboxStats) map[string]time.Duration {
	cpu := map[string]time.Duration{}
	for _, old := range t.before.GetSandboxes() {
		if old.GetSandboxId() == sb.GetSandboxId() {
			for _, c := range old.GetContainers() {
				cpu[c.GetServiceName()] = c.GetCpuTime().AsDuration()
			}
		}
	}
	return cpu
}

// with returns the row with the sum over containers. A limit of the sum needs a limit of each.
func (r topRow) with(containers []*agboxv1.ContainerStats, earlier map[string]time.Duration, since time.Duration) topRow {
	var used time.Duration
	known, memoryLimited, pidsLimited := since > 0, true, true
	for _, c := range containers {
		old, ok := earlier[c.GetServiceName()]
		cpu := c.GetCpuTime().AsDuration()
		known = known && ok && cpu >= old // it started again if it has used less
		used += cpu - old
		r.CPUSeconds += cpu.Seconds()
		r.Memory += c.GetMemoryBytes()
		r.MemoryLimit += c.GetMemoryLimitBytes()
		r.Pids += c.GetPids()
		r.PidsLimit += c.GetPidsLimit()
		r.Read += c.GetIoReadBytes()
		r.Written += c.GetIoWrittenBytes()
		memoryLimited, pidsLimited = memoryLimited && c.GetMemoryLimitBytes() > 0, pidsLimited && c.GetPidsLimit() > 0
		r.running = true
	}
	if !memoryLimited {
		r.MemoryLimit = 0
	}
	if !pidsLimited {
		r.PidsLimit = 0
	}
	if known && r.running {
		percent := 100 * used.Seconds() / since.Seconds()
		r.CPUPercent = &percent
	}
	return r
}

func printRows(w io.Writer, rows []topRow) error {
	for _, r := range rows {
		if err := printLine(w, r); err != nil {
			return err
		}
	}
	return nil
}

func (t *top) printTable(rows []topRow) {
	out := &table{}
	add := func(name, service string, cells ...string) {
		first := []string{name}
		if t.containers {
			first = append(first, service)
		}
		out.add(append(first, cells...)...)
	}
	state := 1
	if t.containers {
		state = 2
	}
	out.paintStates(t.a.Out, state)
	add("NAME", "CONTAINER", "STATE", "CPU", "MEMORY", "PIDS", "READ", "WRITTEN")
	for _, r := range rows {
		name, service := clip(cmp.Or(r.Name, r.SandboxID), nameWidth), "-"
		if r.Service != nil {
			service = cmp.Or(*r.Service, "primary")
		}
		if !r.running {
			add(name, service, r.State, "-", "-", "-", "-", "-")
			continue
		}
		cpu := "-"
		if r.CPUPercent != nil {
			cpu = fmt.Sprintf("%.0f%%", *r.CPUPercent)
		}
		memory, pids := bytesText(r.Memory), fmt.Sprint(r.Pids)
		if r.MemoryLimit > 0 {
			memory += " / " + bytesText(r.MemoryLimit)
		}
		if r.PidsLimit > 0 {
			pids += " / " + fmt.Sprint(r.PidsLimit)
		}
		add(name, service, r.State, cpu, memory, pids, bytesText(r.Read), bytesText(r.Written))
	}
	out.write(t.a.Out)
}

func bytesText(n uint64) string { return units.BytesSize(float64(n)) }
