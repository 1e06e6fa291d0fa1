package controller

import (
	"log/slog"
	"time"

	"github.com/agbox/agbox/controller/plan"
)

// audit leaves one line for one action on the engine. Its reasons are a closed list and no part of the API.
func (p *pass) audit(s plan.Step, object string, took time.Duration, err error) {
	audit(p.log, p.rec.ID, s, object, took, err)
}

// audit is what pass.audit does. sandboxID is empty for what is done to no sandbox.
func audit(log *slog.Logger, sandboxID string, s plan.Step, object string, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	attrs := []any{
		"sandbox_id", sandboxID, "step", string(s.Kind), "reason", string(s.Reason), "result", result,
		"object_id", object, "took_ms", took.Milliseconds(),
	}
	if s.Service != "" {
		attrs = append(attrs, "service", s.Service)
	}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	log.Info("audit", attrs...)
}
