package acp

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestOtherVersion(t *testing.T) {
	for chosen, want := range map[string]string{
		"": "", "null": "", "1": "",
		"2":                       "version 2 of",
		"0":                       "version 0 of",
		`"0.0.9"`:                 `version "0.0.9" of`,
		`"1"`:                     `version "1" of`, // drafts before version 1 had texts
		"-1":                      "an unknown version of",
		"{}":                      "an unknown version of",
		`"\u001b[31m"`:            "an unknown version of",
		`"1234567890.1234567890"`: "an unknown version of",
	} {
		got := OtherVersion(json.RawMessage(chosen))
		if want == "" && got != "" || want != "" && !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", chosen, got, want)
		}
	}
}

// The error has the facts that the user needs to choose another release of the agent.
func TestErrorNamesTheVersion(t *testing.T) {
	_, err := New(Options{}).FromAgent([]byte(strings.Replace(initialized, `"protocolVersion":1`, `"protocolVersion":2`, 1)))
	if err == nil || !strings.Contains(err.Error(), "the agent speaks version 2 of the Agent Client Protocol, not 1") {
		t.Errorf("got %v", err)
	}
}
