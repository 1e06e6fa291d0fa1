package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/agbox/agbox/config"
)

// The log quotes errors of registries and engines. In both forms a terminal shows them and obeys nothing.
func TestTheLogHarmsNoTerminal(t *testing.T) {
	const evil = "\x1b[2J\u009b2J\x7f\u202ex\u2066\u200b"
	for _, format := range []string{config.LogFormatJSON, config.LogFormatText} {
		var out bytes.Buffer
		newLogger(format, slog.LevelInfo, &out).Info("pull", "err", evil, "sandbox_id", "box")
		if i := strings.IndexAny(out.String(), evil[:1]+"\u009b\x7f\u202e\u2066\u200b"); i >= 0 || !strings.Contains(out.String(), "box") || !strings.HasSuffix(out.String(), "\n") {
			t.Errorf("%s: %q", format, out.String())
		}
	}
}
