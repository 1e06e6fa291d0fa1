package dialect

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/agbox/agbox/internal/agent/dialect/acp"
)

// cut returns s as valid UTF-8 of at most limit bytes, and whether text was dropped.
func cut(s string, limit int) (string, bool) {
	if len(s) <= limit && utf8.ValidString(s) {
		return s, false
	}
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= limit {
		return s, false
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit], true
}

func short(s string, limit int) string {
	s, _ = cut(s, limit)
	return s
}

// compact returns JSON without insignificant space. A string is returned unquoted; null is empty.
func compact(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}

// parse decodes a JSON object as far as possible: members of an unexpected type are left out, and of a damaged or cut
// object the members before the damage are kept. It returns false if line is not an object.
func parse(line []byte, v any) bool {
	if len(line) == 0 || line[0] != '{' {
		return false
	}
	if acp.Decode(line, v) {
		return true
	}
	b, err := json.Marshal(salvage(line))
	return err == nil && acp.Decode(b, v)
}

// salvage returns the complete members before the damage in an object.
func salvage(line []byte) map[string]json.RawMessage {
	found := map[string]json.RawMessage{}
	d := json.NewDecoder(bytes.NewReader(line))
	if _, err := d.Token(); err != nil {
		return found
	}
	for {
		key, err := d.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return found
		}
		var raw json.RawMessage
		if d.Decode(&raw) != nil {
			return found
		}
		found[name] = raw
	}
}
