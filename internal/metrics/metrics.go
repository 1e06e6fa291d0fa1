// Package metrics defines the metrics that agboxd exports to Prometheus. Except for the usage of single sandboxes and the build, every label
// value is of a fixed set, and every combination exists from the start with 0, so that an alert on the first error works.
package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of a reconcile pass.
const (
	ResultDone     = "done"
	ResultLater    = "later"
	ResultTerminal = "terminal"
	ResultError    = "error"
	ResultPanic    = "panic"
)

// Metrics are the daemon's own metrics. The zero value is not usable; see New.
type Metrics struct {
	build       *prometheus.GaugeVec
	passes      *prometheus.CounterVec
	passSeconds *prometheus.HistogramVec
	steps       *prometheus.CounterVec
	engine      *prometheus.CounterVec
	engineSecs  *prometheus.HistogramVec
	commits     *prometheus.CounterVec
	commitSecs  prometheus.Histogram
	writes      prometheus.Counter
	rpcs        *prometheus.CounterVec
	rpcSeconds  prometheus.Histogram
	execs       *prometheus.CounterVec
	execSeconds prometheus.Histogram
	orphans     prometheus.Counter
	dropped     prometheus.Counter
	unknown     prometheus.Gauge
	netDenied   prometheus.Counter
	resync      prometheus.Gauge
	engineUp    prometheus.Gauge
	reloads     *prometheus.CounterVec
	loaded      prometheus.Gauge
	backups     *prometheus.CounterVec
	backedUp    prometheus.Gauge
	rebuilt     *prometheus.CounterVec
	unrebuilt   prometheus.Gauge
	logErrors   prometheus.Counter
	drains      *prometheus.CounterVec
	diskFree    *prometheus.GaugeVec
	diskLow     *prometheus.GaugeVec
	released    prometheus.Counter
	prompts     prometheus.Counter
	turnSeconds prometheus.Histogram
	// agentChanges is by trigger.
	agentChanges *prometheus.CounterVec
	queue        queueMetrics
	clockJumps   *prometheus.CounterVec
	clockWait    prometheus.Gauge
	// channelDrops is by reason.
	channelDrops *prometheus.CounterVec
	// streams is by path.
	streams *prometheus.CounterVec
}

// Sets are the fixed label sets, which the caller provides.
type Sets struct {
	// Loops are the names of the work queues.
	Loops []string
	// Steps are the reconcile steps.
	Steps []string
	// EngineOps are the operations of the engine port.
	EngineOps []string
	// RebuildSources are the sources that records are rebuilt from.
	RebuildSources []string
	// ExecStates are the states in which execs end.
	ExecStates []string
	// Disks are the names of the watched disks.
	Disks []string
	// DrainPhases are the phases of a drain.
	DrainPhases []string
	// ClockJumps are the kinds of jumps of the host's clock.
	ClockJumps []string
	// ChannelDrops are the reasons for which connections of live channels are ended.
	ChannelDrops []string
	// StreamPaths are the paths of streams into sandboxes.
	StreamPaths []string
	// AgentTriggers are the triggers of agents' state changes.
	AgentTriggers []string
}

var (
	results = []string{ResultDone, ResultLater, ResultTerminal, ResultError, ResultPanic}
	// seconds are buckets from one fsync (1 ms) to a pull (minutes).
	seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	// runTimes are buckets from a small program (10 ms) to a day.
	runTimes = []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}
)

// New registers all metrics on reg. It panics if one of them is registered already.
func New(reg prometheus.Registerer, sets Sets) *Metrics {
	m := (&factory{reg: reg}).metrics()
	m.zero(sets)
	return m
}

func (f *factory) metrics() *Metrics {
	return &Metrics{
		build:       f.gauges("agboxd_build_info", "Always 1, with the version of agboxd and of Go.", "version", "goversion"),
		passes:      f.counters("agboxd_reconcile_total", "Reconcile passes by loop and result.", "loop", "result"),
		passSeconds: f.histograms("agboxd_reconcile_seconds", "Time of a reconcile pass.", "loop"),
		steps:       f.counters("agboxd_steps_total", "Executed reconcile steps by step and result.", "step", "result"),
		engine:      f.counters("agboxd_engine_calls_total", "Engine calls by operation and result.", "op", "result"),
		engineSecs:  f.histograms("agboxd_engine_call_seconds", "Time of an engine call.", "op"),
		commits:     f.counters("agboxd_store_commits_total", "Store transactions by result.", "result"),
		commitSecs:  f.histogram("agboxd_store_commit_seconds", "Time of a store transaction, fsync included.", seconds),
		writes:      f.counter("agboxd_store_writes_total", "Accepted writes; several share one transaction."),
		rpcs:        f.counters("agboxd_rpcs_total", "RPCs by method and code.", "method", "code"),
		rpcSeconds:  f.histogram("agboxd_rpc_seconds", "Time of a unary RPC.", seconds),
		execs:       f.counters("agboxd_execs_total", "Ended execs by state, without the processes of agents.", "state"),
		execSeconds: f.histogram("agboxd_exec_seconds", "Run time of the ended execs that had started, without the processes of agents.", runTimes),
		orphans:     f.counter("agboxd_orphans_removed_total", "Docker objects of deleted sandboxes that were removed."),
		dropped:     f.counter("agboxd_exec_log_dropped_bytes_total", "Bytes of execs' output dropped because of exec_log_max_bytes."),
		unknown:     f.gauge("agboxd_unknown_sandboxes", "Sandbox IDs on Docker objects that were never in the store."),
		resync:      f.gauge("agboxd_last_resync_timestamp_seconds", "Unix time of the last complete resync."),
		netDenied: f.counter("agboxd_network_denied_total",
			"Packets that network policies dropped, and names that they did not answer, of the destinations that are recorded."),
		engineUp:     f.gauge("agboxd_engine_up", "1 while the engine answers and is the same as before; 0: engine state unknown."),
		reloads:      f.counters("agboxd_config_reloads_total", "Reloads of the configuration by result.", "result"),
		loaded:       f.gauge("agboxd_config_last_reload_success_timestamp_seconds", "Unix time when the configuration was last loaded without an error."),
		backups:      f.counters("agboxd_backups_total", "Scheduled backups by result.", "result"),
		backedUp:     f.gauge("agboxd_backup_last_success_timestamp_seconds", "Unix time of the last scheduled backup that succeeded."),
		rebuilt:      f.counters("agboxd_rehydrated_sandboxes_total", "Records that were rebuilt without the database, by source.", "source"),
		unrebuilt:    f.gauge("agboxd_rehydrate_skipped", "Objects and files that a rebuild could not read; they may belong to this daemon."),
		logErrors:    f.counter("agboxd_log_errors_total", "Errors of the log from which a lost database is rebuilt; the next snapshot repairs the log."),
		diskFree:     f.gauges("agboxd_disk_free_bytes", "Free space of the disks that agboxd and the engine write to, by disk.", "disk"),
		diskLow:      f.gauges("agboxd_disk_low", "1 while a disk has less than disk.low_water and new sandboxes and execs are refused.", "disk"),
		released:     f.counter("agboxd_disk_ballast_released_total", "Pieces of the ballast that were released because a commit found the disk full."),
		drains:       f.counters("agboxd_drain_phases_total", "Drain phases entered, by phase.", "phase"),
		prompts:      f.counter("agboxd_agent_prompts_total", "Prompts written to agents' inboxes, redeliveries included."),
		turnSeconds:  f.histogram("agboxd_agent_turn_seconds", "Time from a prompt to its result.", seconds),
		agentChanges: f.counters("agboxd_agent_transitions_total", "State changes of agents by trigger.", "trigger"),
		queue:        newQueueMetrics(f),
		clockJumps:   f.counters("agboxd_clock_jumps_total", "Jumps of the wall clock, suspends of the host, and boots with an unsynchronised clock, by kind.", "kind"),
		channelDrops: f.counters("agboxd_channel_dropped_total", "Connections to the sockets of live channels that were ended, by reason.", "reason"),
		streams:      f.counters("agboxd_streams_total", "Streams into sandboxes, by path: live for the live channel, archive for the engine's archives, files for those that were refused because the sandbox has no channel.", "path"),
		clockWait:    f.gauge("agboxd_deadlines_wait_until_timestamp_seconds", "Unix time until which a clock jump defers deadlines that stop or delete; 0: deadlines are not deferred."),
	}
}

func (m *Metrics) zero(sets Sets) {
	for _, r := range results {
		each(m.passes, sets.Loops, r)
	}
	each(m.passSeconds, sets.Loops)
	each(m.execs, sets.ExecStates)
	each(m.diskFree, sets.Disks)
	each(m.diskLow, sets.Disks)
	each(m.drains, sets.DrainPhases)
	each(m.agentChanges, sets.AgentTriggers)
	each(m.clockJumps, sets.ClockJumps)
	each(m.channelDrops, sets.ChannelDrops)
	each(m.streams, sets.StreamPaths)
	each(m.rebuilt, sets.RebuildSources)
	for _, r := range []string{"ok", "error"} {
		each(m.steps, sets.Steps, r)
		each(m.engine, sets.EngineOps, r)
		for _, one := range []*prometheus.CounterVec{m.commits, m.reloads, m.backups} {
			one.WithLabelValues(r)
		}
	}
}

// each creates the metrics of these values of the first label; others are the values of the other labels.
func each[M any](vec interface{ WithLabelValues(...string) M }, values []string, others ...string) {
	for _, value := range values {
		vec.WithLabelValues(append([]string{value}, others...)...)
	}
}

// Build records the version of agboxd.
func (m *Metrics) Build(version string) { m.build.WithLabelValues(version, runtime.Version()).Set(1) }

// ExecEnded counts the end of an exec in one of the states of Sets. ran is its run time; 0: it had not started.
func (m *Metrics) ExecEnded(state string, ran time.Duration) {
	m.execs.WithLabelValues(state).Inc()
	if ran > 0 {
		m.execSeconds.Observe(ran.Seconds())
	}
}

// Pass counts one reconcile pass.
func (m *Metrics) Pass(loop, result string, took time.Duration) {
	m.passes.WithLabelValues(loop, result).Inc()
	m.passSeconds.WithLabelValues(loop).Observe(took.Seconds())
}

// Step counts one reconcile step.
func (m *Metrics) Step(step string, err error) { m.steps.WithLabelValues(step, outcome(err)).Inc() }

// EngineCall counts one engine call.
func (m *Metrics) EngineCall(op string, took time.Duration, err error) {
	m.engine.WithLabelValues(op, outcome(err)).Inc()
	m.engineSecs.WithLabelValues(op).Observe(took.Seconds())
}

// Commit counts one store transaction with this number of writes.
func (m *Metrics) Commit(took time.Duration, writes int, err error) {
	m.commits.WithLabelValues(outcome(err)).Inc()
	m.commitSecs.Observe(took.Seconds())
	if err == nil {
		m.writes.Add(float64(writes))
	}
}

// RPC counts one RPC. Code is a gRPC code's name.
func (m *Metrics) RPC(method, code string, took time.Duration) {
	m.rpcs.WithLabelValues(method, code).Inc()
	m.rpcSeconds.Observe(took.Seconds())
}

// LogDropped counts dropped output of an exec, in bytes.
func (m *Metrics) LogDropped(bytes int64) { m.dropped.Add(float64(bytes)) }

// OrphanRemoved counts one removed object of a deleted sandbox.
func (m *Metrics) OrphanRemoved() { m.orphans.Inc() }

// Resynced records a complete resync and the number of unknown sandboxes that it found.
func (m *Metrics) Resynced(at time.Time, unknown int) {
	m.resync.Set(unix(at))
	m.unknown.Set(float64(unknown))
}

// NetworkDenied counts what network policies have denied.
func (m *Metrics) NetworkDenied(n uint64) { m.netDenied.Add(float64(n)) }

// EngineUp records whether the engine's state is known.
func (m *Metrics) EngineUp(up bool) {
	m.engineUp.Set(bit(up))
}

// ConfigLoaded records that the configuration was loaded, at the start or by a reload.
func (m *Metrics) ConfigLoaded(at time.Time) { m.loaded.Set(unix(at)) }

// ConfigReloaded counts one reload of the configuration.
func (m *Metrics) ConfigReloaded(err error) {
	m.reloads.WithLabelValues(outcome(err)).Inc()
	if err == nil {
		m.ConfigLoaded(time.Now())
	}
}

// BackedUp counts one scheduled backup.
func (m *Metrics) BackedUp(at time.Time, err error) {
	m.backups.WithLabelValues(outcome(err)).Inc()
	if err == nil {
		m.LastBackup(at)
	}
}

// LastBackup records when the newest scheduled backup was made.
func (m *Metrics) LastBackup(at time.Time) { m.backedUp.Set(unix(at)) }

// Disk records one reading of a disk.
func (m *Metrics) Disk(name string, free int64, low bool) {
	m.diskFree.WithLabelValues(name).Set(float64(free))
	m.diskLow.WithLabelValues(name).Set(bit(low))
}

// BallastReleased counts a piece of the ballast that was released for a commit.
func (m *Metrics) BallastReleased() { m.released.Inc() }

// Drained counts that a drain entered a phase.
func (m *Metrics) Drained(phase string) { m.drains.WithLabelValues(phase).Inc() }

// AgentPrompted counts a prompt that was written into an agent's inbox; a redelivery counts again.
func (m *Metrics) AgentPrompted() { m.prompts.Inc() }

// AgentChanged counts a change of an agent's state.
func (m *Metrics) AgentChanged(trigger string) { m.agentChanges.WithLabelValues(trigger).Inc() }

// AgentAnswered records the time from the claim of a prompt to its result.
func (m *Metrics) AgentAnswered(took time.Duration) { m.turnSeconds.Observe(took.Seconds()) }

// ClockJumped counts a jump of the host's clock.
func (m *Metrics) ClockJumped(kind string) { m.clockJumps.WithLabelValues(kind).Inc() }

// DeadlinesWait records until when deadlines are deferred; zero: they are not.
func (m *Metrics) DeadlinesWait(until time.Time) {
	m.clockWait.Set(unix(until))
}

// Rehydrated counts rebuilt records.
func (m *Metrics) Rehydrated(source string, n int) { m.rebuilt.WithLabelValues(source).Add(float64(n)) }

// RehydrateSkipped records the number of objects and files that a rebuild could not read.
func (m *Metrics) RehydrateSkipped(n int) { m.unrebuilt.Set(float64(n)) }

// LogFailed counts one error of the log of the database.
func (m *Metrics) LogFailed(error) { m.logErrors.Inc() }

func outcome(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// unix returns the seconds since 1970; 0 for the zero time.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / 1e9
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Live are the numbers that are read when they are scraped.
type Live struct {
	// Channels is the number of sandboxes whose live channel is connected.
	Channels func() int
	// OverQuota is the number of sandboxes over their quota.
	OverQuota func() int
	// UnreadableSecrets is the number of secrets whose files can't be read.
	UnreadableSecrets func() int
	// Vanished is the number of sandboxes that vanished from the engine together and await an operator.
	Vanished func() int
	// LogWhole reports whether the log contains all committed changes.
	LogWhole func() bool
	// Sandboxes and Agents return the numbers of all states, by the label of the state.
	Sandboxes, Agents func() map[string]int
	// AgentsInNeed is the number of agents that do not restart until a user starts them.
	AgentsInNeed func() int
	// Usage returns what each running sandbox uses, or, if they are too many, only their number.
	Usage func() (used []SandboxUsage, omitted int)
}

// SandboxUsage is what the containers of one sandbox use together.
type SandboxUsage struct {
	ID, Name   string
	CPUSeconds float64
	// MemoryLimitBytes is 0 if a container has no limit.
	MemoryBytes, MemoryLimitBytes, Pids, ReadBytes, WrittenBytes float64
}

// Export registers the metrics of the numbers that are read when they are scraped.
func Export(reg prometheus.Registerer, l Live) { (&factory{reg: reg}).export(l) }

func (f *factory) export(l Live) {
	f.scraped("agboxd_sandboxes_over_quota", "Sandboxes whose logs exceed artifacts.sandbox_max_bytes.", func() float64 { return float64(l.OverQuota()) })
	f.scraped("agboxd_secrets_unreadable", "Secrets of sandboxes whose files can't be read; the sandboxes keep the last values.",
		func() float64 { return float64(l.UnreadableSecrets()) })
	f.scraped("agboxd_channels_connected", "Sandboxes whose live channel is connected.", func() float64 { return float64(l.Channels()) })
	f.scraped("agboxd_sandboxes_vanished", "Sandboxes that vanished from the engine together; they are not reconciled until `agbox engine confirm`.",
		func() float64 { return float64(l.Vanished()) })
	f.scraped("agboxd_log_complete", "1 while the log from which a lost database is rebuilt is complete.", func() float64 { return bit(l.LogWhole()) })
	f.scraped("agboxd_agents_need_attention", "Agents that failed to start too often and are not restarted.", func() float64 { return float64(l.AgentsInNeed()) })
	f.byState("agboxd_sandboxes", "Sandboxes by state.", l.Sandboxes)
	f.byState("agboxd_agents", "Agents by state.", l.Agents)
	f.usage(l.Usage)
}

func (f *factory) byState(name, help string, count func() map[string]int) {
	labels := []string{"state"}
	register(f, &stateCollector{prometheus.NewDesc(name, help, labels, nil), count}, "gauge", name, help, labels)
}

type stateCollector struct {
	desc  *prometheus.Desc
	count func() map[string]int
}

func (s *stateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc }

func (s *stateCollector) Collect(ch chan<- prometheus.Metric) {
	for state, n := range s.count() {
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(n), state)
	}
}

// Info describes a metric.
type Info struct {
	Name, Type, Help string
	Labels           []string
}

// All describes the metrics of New and Export, in the order of their registration.
func All() []Info {
	f := &factory{reg: prometheus.NewRegistry()}
	f.metrics()
	f.export(Live{})
	return f.made
}

// factory creates and registers metrics.
type factory struct {
	reg  prometheus.Registerer
	made []Info
}

func register[C prometheus.Collector](f *factory, c C, kind, name, help string, labels []string) C {
	f.reg.MustRegister(c)
	f.made = append(f.made, Info{name, kind, help, labels})
	return c
}

func (f *factory) scraped(name, help string, value func() float64) {
	register(f, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value), "gauge", name, help, nil)
}

func (f *factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(f, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels), "counter", name, help, labels)
}

func (f *factory) counter(name, help string) prometheus.Counter {
	return register(f, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}), "counter", name, help, nil)
}

func (f *factory) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(f, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels), "gauge", name, help, labels)
}

func (f *factory) gauge(name, help string) prometheus.Gauge {
	return register(f, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}), "gauge", name, help, nil)
}

func (f *factory) histograms(name, help string, labels ...string) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}
	return register(f, prometheus.NewHistogramVec(opts, labels), "histogram", name, help, labels)
}

func (f *factory) histogram(name, help string, buckets []float64) prometheus.Histogram {
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	return register(f, prometheus.NewHistogram(opts), "histogram", name, help, nil)
}

// StreamOpened counts a stream into a sandbox.
func (m *Metrics) StreamOpened(path string) { m.streams.WithLabelValues(path).Inc() }

// ChannelDropped counts a connection that was ended.
func (m *Metrics) ChannelDropped(reason string) { m.channelDrops.WithLabelValues(reason).Inc() }
