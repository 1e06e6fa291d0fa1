package acp

import (
	"encoding/json"
	"fmt"
	"strings"
)

// version is the version of the protocol that the client speaks.
const version = 1

// maxVersion bounds what is told of a version, in bytes.
const maxVersion = 20

// OtherVersion says in a few words which version an agent has chosen by the protocolVersion of its answer to initialize, if
// it is not ours, and "" otherwise. The protocol wants the member, and an agent names the newest version it speaks where it
// can't speak the one that it was asked for. So one that leaves it out has not refused ours.
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
