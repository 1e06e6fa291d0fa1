// Package auditlog writes the audit lines: one line in the daemon's log for each action on the engine.
package auditlog

import (
	"log/slog"
	"time"

	"github.com/agbox/agbox/controller/plan"
)

// Write writes the line of one action. Its reason is one of a closed list and no part of the API. sandboxID is empty for an action on
// no sandbox.
func Write(log *slog.Logger, sandboxID string, s plan.Step, object string, took time.Duration, err error) {
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
