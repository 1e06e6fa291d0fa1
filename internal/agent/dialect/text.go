package dialect

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// cut returns s as valid UTF-8 of at most limit bytes, and whether something is missing.
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

// compact returns JSON without needless space. A string is given as what it says; null is nothing.
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

// parse reads a JSON object as far as it can be read: members of an unexpected type are left out, and of an object that is
// damaged or was cut, the members before the damage count. It returns false for what is no object.
func parse(line []byte, v any) bool {
	if len(line) == 0 || line[0] != '{' {
		return false
	}
	err := json.Unmarshal(line, v)
	if err == nil || isTypeError(err) {
		return true
	}
	b, err := json.Marshal(salvage(line))
	if err != nil {
		return false
	}
	err = json.Unmarshal(b, v)
	return err == nil || isTypeError(err)
}

func isTypeError(err error) bool {
	var typed *json.UnmarshalTypeError
	return errors.As(err, &typed)
}

// salvage returns the whole members at the beginning of a damaged object.
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
