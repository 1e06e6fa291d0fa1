package metrics

import "github.com/prometheus/client_golang/prometheus"

// usageMetric is one metric of each running sandbox.
type usageMetric struct {
	name, help string
	kind       prometheus.ValueType
	value      func(SandboxUsage) float64
	desc       *prometheus.Desc
}

// usageCollector reads the usage once per scrape.
type usageCollector struct {
	read    func() ([]SandboxUsage, int)
	metrics []usageMetric
	omitted *prometheus.Desc
}

// usage registers the metrics of single sandboxes. Their labels are an ID and a name, so their number has a bound; see
// docs/decisions/0028-per-sandbox-metrics.md.
func (f *factory) usage(read func() ([]SandboxUsage, int)) {
	labels := []string{"sandbox_id", "sandbox"}
	const omitted, omittedHelp = "agboxd_sandbox_metrics_omitted", "READY and PAUSED sandboxes without agboxd_sandbox_* metrics, because there are more than metrics.max_sandboxes."
	c := &usageCollector{read: read, omitted: prometheus.NewDesc(omitted, omittedHelp, nil, nil), metrics: []usageMetric{
		{name: "agboxd_sandbox_cpu_seconds_total", help: "CPU time of a sandbox's containers.", kind: prometheus.CounterValue,
			value: func(u SandboxUsage) float64 { return u.CPUSeconds }},
		{name: "agboxd_sandbox_memory_bytes", help: "Memory of a sandbox's containers, without file cache that can be dropped.", kind: prometheus.GaugeValue,
			value: func(u SandboxUsage) float64 { return u.MemoryBytes }},
		{name: "agboxd_sandbox_memory_limit_bytes", help: "Sum of the memory limits of a sandbox's containers; 0: one of them has no limit.", kind: prometheus.GaugeValue,
			value: func(u SandboxUsage) float64 { return u.MemoryLimitBytes }},
		{name: "agboxd_sandbox_pids", help: "Processes and threads in a sandbox's containers.", kind: prometheus.GaugeValue,
			value: func(u SandboxUsage) float64 { return u.Pids }},
		{name: "agboxd_sandbox_io_read_bytes_total", help: "Bytes that a sandbox's containers read from block devices.", kind: prometheus.CounterValue,
			value: func(u SandboxUsage) float64 { return u.ReadBytes }},
		{name: "agboxd_sandbox_io_written_bytes_total", help: "Bytes that a sandbox's containers wrote to block devices.", kind: prometheus.CounterValue,
			value: func(u SandboxUsage) float64 { return u.WrittenBytes }},
	}}
	kinds := map[prometheus.ValueType]string{prometheus.CounterValue: "counter", prometheus.GaugeValue: "gauge"}
	for i, m := range c.metrics {
		c.metrics[i].desc = prometheus.NewDesc(m.name, m.help, labels, nil)
		f.made = append(f.made, Info{m.name, kinds[m.kind], m.help, labels})
	}
	register(f, c, "gauge", omitted, omittedHelp, nil)
}

// Describe implements prometheus.Collector.
func (c *usageCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
	ch <- c.omitted
}

// Collect implements prometheus.Collector.
func (c *usageCollector) Collect(ch chan<- prometheus.Metric) {
	all, omitted := c.read()
	for _, u := range all {
		for _, m := range c.metrics {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(u), u.ID, u.Name)
		}
	}
	ch <- prometheus.MustNewConstMetric(c.omitted, prometheus.GaugeValue, float64(omitted))
}
