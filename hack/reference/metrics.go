package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agbox/agbox/internal/metrics"
)

type metric struct {
	Name, Type, Help string
	Labels           []string
}

// recorder is a prometheus.Registerer that stores the registered metrics.
type recorder struct {
	prometheus.Registerer // nil: other methods are not called
	list                  []metric
	err                   error
}

// allMetrics returns the metrics of agboxd by name.
func allMetrics() ([]metric, error) {
	var r recorder
	none := func() map[string]int { return nil }
	zero := func() int { return 0 }
	metrics.New(&r, metrics.Sets{})
	metrics.OverQuota(&r, zero)
	metrics.Vanished(&r, zero)
	metrics.LogWhole(&r, func() bool { return true })
	metrics.States(&r, nil, none)
	metrics.Agents(&r, nil, none, zero)
	slices.SortFunc(r.list, func(a, b metric) int { return strings.Compare(a.Name, b.Name) })
	return r.list, r.err
}

func (r *recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	for d := range descs {
		r.add(d.String(), typeOf(c))
	}
	return nil
}

func (r *recorder) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		_ = r.Register(c) // Register returns no error; add stores it
	}
}

// described matches prometheus.Desc.String, the only access to its fields.
var described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)", (?:unit: "[^"]*", )?constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`)

func (r *recorder) add(desc, kind string) {
	m := described.FindStringSubmatch(desc)
	switch {
	case m == nil:
		r.err = fmt.Errorf("metric %s has a form that is not known", desc)
	case strings.HasPrefix(m[1], "agboxd_"):
		var labels []string
		if m[3] != "" {
			labels = strings.Split(m[3], ",")
		}
		r.list = append(r.list, metric{m[1], kind, m[2], labels})
	}
}

func typeOf(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case *prometheus.GaugeVec, prometheus.Gauge: // a Gauge has the methods of a Counter
		return "gauge"
	case prometheus.Counter:
		return "counter"
	}
	return "gauge" // functions, and agbox's own collectors
}
