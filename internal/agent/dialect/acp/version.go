package acp

import (
	"encoding/json"
	"fmt"
	"strings"
)

// version is the version of the protocol that the client supports.
const version = 1

// maxVersion bounds how much of a version is quoted, in bytes.
const maxVersion = 20

// OtherVersion describes the version that an agent has chosen by the protocolVersion of its response to initialize, if it is
// not the client's; otherwise it returns "". An agent that does not support the requested version names its newest one, so a
// response without the required member is not a refusal.
func OtherVersion(chosen json.RawMessage) string {
	text := string(chosen)
	if text == "" || text == "null" || text == fmt.Sprint(version) {
		return ""
	}
	word := "version " + text
	if len(text) > maxVersion || strings.Trim(text, `"0123456789.`) != "" {
		word = "an unknown version"
	}
	return fmt.Sprintf("the agent speaks %s of the Agent Client Protocol, not %d", word, version)
}
