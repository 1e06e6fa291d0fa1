package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestAlertsAndDashboardNameMetricsThatExist reads config/prometheus. internal/testing/e2e runs both in a real Prometheus.
func TestAlertsAndDashboardNameMetricsThatExist(t *testing.T) {
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	read := func(name string, decode func([]byte, any) error, into any) {
		raw, err := os.ReadFile("../../config/prometheus/" + name)
		if err == nil {
			err = decode(raw, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	read("alerts.yml", yaml.Unmarshal, &alerts)
	read("grafana-dashboard.json", json.Unmarshal, &dashboard)
	exprs := map[string]string{}
	for _, g := range alerts.Groups {
		for _, r := range g.Rules {
			exprs["alert "+r.Alert] += r.Expr
		}
	}
	for _, p := range dashboard.Panels {
		for _, one := range p.Targets {
			exprs["panel "+p.Title] += " " + one.Expr
		}
	}
	known, used := map[string]bool{}, 0
	for _, m := range All() {
		known[m.Name] = true
		if m.Type == "histogram" {
			known[m.Name+"_bucket"] = true
		}
	}
	for where, expr := range exprs {
		for _, name := range regexp.MustCompile(`\b(agboxd|workqueue)_[a-z_]+`).FindAllString(expr, -1) {
			used++
			if !known[name] {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
	}
	if used < 50 {
		t.Errorf("only %d metrics in %d expressions", used, len(exprs))
	}
}
