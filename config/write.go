package config

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Write writes c as a file that Load accepts. The text of note for a key is the comment beside its value.
func Write(w io.Writer, c Config, note func(Key) string) error {
	var b strings.Builder
	sections(&b, func(k Key, name string) {
		fmt.Fprintf(&b, "%s = %s # %s\n", name, k.Value(c), note(k))
	})
	_, err := io.WriteString(w, b.String())
	return err
}

// sections calls key for each key and its name in its section, with the header of its section before the first.
func sections(b *strings.Builder, key func(k Key, name string)) {
	last := ""
	for _, k := range table {
		section, name, _ := strings.Cut(k.Name, ".")
		if section != last && last != "" {
			b.WriteString("\n")
		}
		if section != last {
			fmt.Fprintf(b, "[%s]\n", section)
		}
		last = section
		key(k, name)
	}
}

// literal returns value in TOML.
func literal(value any) string {
	switch v := value.(type) {
	case int:
		return strconv.Itoa(v)
	case bool:
		return strconv.FormatBool(v)
	case []string:
		quoted := make([]string, len(v))
		for i, text := range v {
			quoted[i] = strconv.Quote(text)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case map[string]string:
		pairs := make([]string, 0, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, strconv.Quote(name)+" = "+strconv.Quote(v[name]))
		}
		return "{" + strings.Join(pairs, ", ") + "}"
	case time.Duration:
		return strconv.Quote(short(v))
	}
	return strconv.Quote(fmt.Sprint(value))
}

// short returns d without zero parts: "30m", not "30m0s".
func short(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
