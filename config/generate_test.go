package config

import (
	"fmt"
	"strings"
)

// lineWidth is where comments are broken.
const lineWidth = 110

// example returns the sections of a file that has every key with its default, and its description.
func example() string {
	var b strings.Builder
	sections(&b, func(k Key, name string) {
		comment(&b, k.Meaning)
		comment(&b, "Values: "+k.rule.text+"."+restart(k))
		fmt.Fprintf(&b, "%s = %s\n", name, k.Value(Default()))
	})
	return b.String()
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

// reference returns the documentation of all keys as a table in Markdown.
func reference() string {
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
