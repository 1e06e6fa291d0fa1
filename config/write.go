package config

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// lineWidth is where comments are broken.
const lineWidth = 110

// Write writes c as a file that Load accepts. The text of note for a key is the comment beside its value.
func Write(w io.Writer, c Config, note func(Key) string) error {
	var b strings.Builder
	sections(&b, func(k Key, name string) {
		fmt.Fprintf(&b, "%s = %s # %s\n", name, k.Value(c), note(k))
	})
	_, err := io.WriteString(w, b.String())
	return err
}

// Example returns the sections of a file that has every key with its default, and its description.
func Example() string {
	var b strings.Builder
	sections(&b, func(k Key, name string) {
		comment(&b, k.Meaning)
		comment(&b, "Values: "+k.rule.text+"."+restart(k))
		fmt.Fprintf(&b, "%s = %s\n", name, k.Value(Default()))
	})
	return b.String()
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

func restart(k Key) string {
	if k.Reload {
		return ""
	}
	return " (restart)"
}

// comment writes text in lines of at most lineWidth bytes.
func comment(b *strings.Builder, text string) {
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > lineWidth {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

// Reference returns the documentation of all keys as a table in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString("| key | type | default | values | reload | meaning |\n|---|---|---|---|---|---|\n")
	for _, k := range table {
		reload := "restart"
		if k.Reload {
			reload = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | %s | %s |\n", k.Name, k.rule.kind, k.Value(Default()), k.rule.text, reload, k.Meaning)
	}
	return b.String()
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
