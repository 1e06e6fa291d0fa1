package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/agbox/agbox/internal/termsafe"
)

// toYAML converts one JSON value to block-style YAML, in the same order. It quotes strings that a YAML reader could parse as another
// type as in JSON, which is valid YAML, because general encoders lose line ends and types of such strings.
func toYAML(text []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	w := &yamlWriter{dec: dec}
	if err := w.value(0, "\n"); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return bytes.TrimLeft(w.out.Bytes(), "\n "), nil
}

type yamlWriter struct {
	dec *json.Decoder
	out bytes.Buffer
}

// value writes the next value, after before if it spans lines.
func (w *yamlWriter) value(depth int, before string) error {
	token, err := w.dec.Token()
	if err != nil {
		return err
	}
	delim, nested := token.(json.Delim)
	if !nested {
		text, err := yamlScalar(token)
		w.out.WriteString(" " + text + "\n")
		return err
	}
	if !w.dec.More() {
		w.out.WriteString(map[json.Delim]string{'{': " {}\n", '[': " []\n"}[delim])
	} else if w.out.WriteString(before); delim == '{' {
		err = w.mapping(depth, before != "\n")
	} else {
		err = w.list(depth)
	}
	if err != nil {
		return err
	}
	_, err = w.dec.Token() // the closing bracket
	return err
}

// mapping writes the pairs; with inline the first one continues the current line.
func (w *yamlWriter) mapping(depth int, inline bool) error {
	for ; w.dec.More(); inline = false {
		token, err := w.dec.Token()
		if err != nil {
			return err
		}
		key, err := yamlScalar(token)
		if err != nil {
			return err
		}
		if !inline {
			w.indent(depth)
		}
		w.out.WriteString(key + ":")
		if err := w.value(depth+1, "\n"); err != nil {
			return err
		}
	}
	return nil
}

func (w *yamlWriter) list(depth int) error {
	for w.dec.More() {
		w.indent(depth)
		w.out.WriteString("-")
		if err := w.value(depth+1, " "); err != nil {
			return err
		}
	}
	return nil
}

func (w *yamlWriter) indent(depth int) { w.out.WriteString(strings.Repeat("  ", depth)) }

var (
	plainYAML = regexp.MustCompile(`^[A-Za-z_/]([A-Za-z0-9_./:@-]*[A-Za-z0-9_./-])?$`)
	// Words that a version of YAML reads as another type.
	typedWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
)

func yamlScalar(token json.Token) (string, error) {
	s, isString := token.(string)
	if isString && plainYAML.MatchString(s) && !slices.Contains(typedWords, strings.ToLower(s)) {
		return s, nil
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(token)
	return strings.TrimSpace(string(termsafe.JSON(out.Bytes()))), err
}
