package validate

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of labels and environments. A label may end up in a command line or a metric's query, so it is kept short; an
// environment entry may not exceed what the kernel passes to a program.
const (
	maxLabels          = 256
	maxLabelKey        = 1024 // characters
	maxLabelValueBytes = 4096
	// maxLabelsBytes bounds all labels together: each list of the engine's objects repeats them.
	maxLabelsBytes = 64 << 10
	maxEnvs        = 4096
	// maxArgBytes is the kernel's MAX_ARG_STRLEN without the final NUL.
	maxArgBytes = 128<<10 - 1
)

var (
	envKeyPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)
)

func checkLabels(errs *Errors, field string, labels map[string]string) {
	if len(labels) > maxLabels {
		errs.add(field, "has %d entries; the limit is %d", len(labels), maxLabels)
		return
	}
	total := 0
	for key, value := range labels {
		total += len(key) + len(value)
	}
	errs.addIf(total > maxLabelsBytes, field, "are %d bytes together; the limit is %d", total, maxLabelsBytes)
	for _, key := range sortedKeys(labels) {
		path, value := keyed(field, key), labels[key]
		n, text := utf8.RuneCountInString(key), utf8.ValidString(key) && !strings.ContainsFunc(key, unicode.IsControl)
		errs.addIf(n == 0 || n > maxLabelKey || !text, path,
			"has a bad key: 1 to %d characters, none of them a control character", maxLabelKey)
		errs.addIf(len(value) > maxLabelValueBytes, path, "is %d bytes; the limit is %d", len(value), maxLabelValueBytes)
		errs.addIf(strings.ContainsFunc(value, isControl), path, "must not contain control characters")
	}
}

func checkEnvs(errs *Errors, field string, envs map[string]string) {
	if len(envs) > maxEnvs {
		errs.add(field, "has %d entries; the limit is %d", len(envs), maxEnvs)
		return
	}
	for _, key := range sortedKeys(envs) {
		path, value := keyed(field, key), envs[key]
		errs.addIf(!envKeyPattern.MatchString(key), path, `has a bad name: ASCII letters, digits, "_", "." and "-", the first a letter or "_"`)
		errs.addIf(len(key)+1+len(value) > maxArgBytes, path, "is %d bytes with its name; the limit is %d", len(key)+1+len(value), maxArgBytes)
		errs.addIf(strings.Contains(value, "\x00"), path, "must not contain a NUL byte")
	}
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }
