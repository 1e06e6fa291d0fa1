package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// queueMetrics are the usual metrics of a Kubernetes controller's work queues, under their usual names.
type queueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec
}

func newQueueMetrics(f *factory) queueMetrics {
	return queueMetrics{
		depth:      f.gauges("workqueue_depth", "Keys waiting in the queue.", "name"),
		adds:       f.counters("workqueue_adds_total", "Keys added to the queue.", "name"),
		retries:    f.counters("workqueue_retries_total", "Keys added again after an error.", "name"),
		latency:    f.histograms("workqueue_queue_duration_seconds", "Time a key waits in the queue.", "name"),
		work:       f.histograms("workqueue_work_duration_seconds", "Time to process a key.", "name"),
		unfinished: f.gauges("workqueue_unfinished_work_seconds", "Seconds of work in progress, not in workqueue_work_duration_seconds yet.", "name"),
		longest:    f.gauges("workqueue_longest_running_processor_seconds", "Age of the longest running pass.", "name"),
	}
}

// QueueProvider provides the queue metrics to client-go.
func (m *Metrics) QueueProvider() workqueue.MetricsProvider { return m.queue }

func (q queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return q.depth.WithLabelValues(name)
}

func (q queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return q.adds.WithLabelValues(name)
}

func (q queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return q.latency.WithLabelValues(name)
}

func (q queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return q.work.WithLabelValues(name)
}

func (q queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.unfinished.WithLabelValues(name)
}

func (q queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.longest.WithLabelValues(name)
}

func (q queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return q.retries.WithLabelValues(name)
}
