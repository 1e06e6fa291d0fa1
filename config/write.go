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

// Write writes c as a file that Parse accepts. The text of note for a key is the comment beside its value.
func Write(w io.Writer, c Config, note func(Key) string) error {
	var b strings.Builder
	sections(&b, func(k Key) {
		_, name, _ := strings.Cut(k.Name, ".")
		fmt.Fprintf(&b, "%s = %s # %s\n", name, k.Value(c), note(k))
	})
	_, err := io.WriteString(w, b.String())
	return err
}

const exampleHead = `# The configuration of agboxd: every key, with its default. A file needs only the keys that it changes.
# Place: $XDG_CONFIG_HOME/agents-sandbox/config.toml (~/.config/agents-sandbox/config.toml), or agboxd --config FILE.
# Durations are written like "90s", "10m" or "168h"; sizes like "512KiB" or "1GiB". Unknown keys are errors.
# SIGHUP (systemctl reload agboxd) loads a changed file; keys marked "restart" need a restart instead.
# This file is generated from the table in config/keys.go: go test ./config -update

`

// Example returns a file that has every key with its default, and its description.
func Example() string {
	var b strings.Builder
	b.WriteString(exampleHead)
	sections(&b, func(k Key) {
		_, name, _ := strings.Cut(k.Name, ".")
		comment(&b, k.Meaning)
		comment(&b, "Values: "+k.Range()+"."+restart(k))
		fmt.Fprintf(&b, "%s = %s\n", name, k.Value(Default()))
	})
	return b.String()
}

// sections calls key for each key, with the header of its section before the first.
func sections(b *strings.Builder, key func(Key)) {
	last := ""
	for _, k := range table {
		section, _, _ := strings.Cut(k.Name, ".")
		if section != last && last != "" {
			b.WriteString("\n")
		}
		if section != last {
			fmt.Fprintf(b, "[%s]\n", section)
		}
		last = section
		key(k)
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

const referenceHead = `# Configuration

agboxd reads ` + "`$XDG_CONFIG_HOME/agents-sandbox/config.toml`" + ` (` + "`~/.config/agents-sandbox/config.toml`" + `) if it exists, or the file
of ` + "`agboxd --config FILE`" + `. The format is TOML; a key that is not in this list is an error. A file needs only the
keys that it changes; [config/examples/agboxd.toml](../config/examples/agboxd.toml) has all of them.

Durations are written like ` + "`\"90s\"`, `\"10m\"` or `\"168h\"`" + `, sizes like ` + "`\"4096\"`, `\"512KiB\"`, `\"1.5GiB\"` or `\"1g\"`" + `, up to 1PiB:
bytes without a unit. Units are powers of 1024 with and without an "i", as in a sandbox's spec: ` + "`\"512MB\"`" + ` is ` + "`\"512MiB\"`" + `.

- ` + "`agboxd config check [--config FILE]`" + ` reports every fault of a file, and exits with 2 if there is one.
- ` + "`agboxd config show [--config FILE]`" + ` prints the effective values and the origin of each.
- SIGHUP (` + "`systemctl reload agboxd`" + `) makes a running daemon read its file again. It applies the keys marked *yes* below
  and logs the names of those that changed but need a restart. A wrong file changes nothing; the daemon logs the error and counts it
  in ` + "`agboxd_config_reloads_total{result=\"error\"}`" + `.

This page is generated from the table in config/keys.go: ` + "`go test ./config -update`" + `.

| key | type | default | values | reload | meaning |
|---|---|---|---|---|---|
`

// Reference returns the documentation of all keys in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	for _, k := range table {
		reload := "restart"
		if k.Reload {
			reload = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | %s | %s |\n", k.Name, k.Type(), k.Value(Default()), k.Range(), reload, k.Meaning)
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
