package manifest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxMistakes is the largest number of mistakes reported for one document.
const maxMistakes = 32

// Error is a mistake in a text.
type Error struct {
	// Line is the line number from 1; 0 if the mistake concerns the whole text.
	Line int
	// Path is the field's path, such as "spec.mounts[0].target"; empty if there is none.
	Path string
	// Text describes the mistake.
	Text string
}

// Error returns "line 3: spec.image: must be a string".
func (e *Error) Error() string {
	text := e.Text
	if e.Path != "" {
		text = e.Path + ": " + text
	}
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return text
}

// Errors holds the mistakes of a text that is valid YAML, at least one, in the order of their discovery.
type Errors []*Error

// Error joins the mistakes with "; ".
func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "; ")
}

// errEnough stops reading a document after maxMistakes mistakes.
var errEnough = errors.New("enough mistakes")

// keep records a mistake and returns nil, so that the reader continues with the next field. It returns any other error.
func (d *decoder) keep(err error) error {
	var one *Error
	if err == nil || !errors.As(err, &one) {
		return err
	}
	d.mistakes = append(d.mistakes, one)
	if len(d.mistakes) < maxMistakes {
		return nil
	}
	d.mistakes = append(d.mistakes, &Error{Text: "and perhaps more"})
	return errEnough
}

// outcome returns the result of reading a document; err is the last error.
func (d *decoder) outcome(err error) error {
	err = d.keep(err)
	if len(d.mistakes) > 0 {
		return d.mistakes
	}
	return err
}

// forms maps messages, by type name, and lists, by field name, to examples in the form that manifests require. Other tools write them
// differently.
var forms = map[protoreflect.Name]string{
	"PortSpec":              "{container_port: 80, host_port: 8080}",
	"MountSpec":             "{source: /host/path, target: /path, writable: true}",
	"CopySpec":              "{source: /host/path, target: /path}",
	"HealthcheckConfig":     `{test: [CMD-SHELL, "curl -f localhost"], interval: 5s}`,
	"ServiceSpec":           "{image: postgres}",
	"VolumeSpec":            "{target: /path}",
	"SecretSpec":            "{file: /host/path, target: /run/secrets/token}",
	"AgentContextPolicy":    "{mode: inject, max_turns: 20}",
	"command":               `[sh, -c, "echo hi"]`,
	"save_command":          `[sh, -c, "git commit -am wip"]`,
	"summary_command":       `[summarise, --short]`,
	"test":                  `[CMD-SHELL, "curl -f localhost"]`,
	"builtin_tools":         "[git, npm]",
	"exclude_patterns":      `[.git, "*.log"]`,
	"post_start_on_primary": `["echo hi"]`,
}

// keyedForms are examples of the mappings of keyed.
var keyedForms = map[protoreflect.Name]string{
	"ServiceSpec": `"db: {image: postgres}"`,
	"VolumeSpec":  `"data: {target: /path}"`,
	"SecretSpec":  `"token: {file: /host/path, target: /run/secrets/token}"`,
}

// mapForm is an example of envs and labels.
const mapForm = "{NAME: value}"

// suchAs returns the hint of an error about the kind of a value; empty without a form.
func suchAs(form string) string {
	if form == "" {
		return ""
	}
	return ", such as " + form
}

// listForm returns an example of the list of a field.
func listForm(fd protoreflect.FieldDescriptor) string {
	if fd.Message() == nil {
		return suchAs(forms[fd.Name()])
	}
	return suchAs("[" + forms[fd.Message().Name()] + "]")
}

// wordings replaces parser messages that describe its internals.
var wordings = []struct{ parser, ours string }{
	{`found character '` + "\t" + `'`, "a tab; indent with spaces"},
	{"mapping value is not allowed", `a "key: value" is not allowed here: check the indentation of this and the next line, and put text with ": " in quotes`},
	{"non-map value is specified", `must be "key: value", like the lines around it`},
}

// syntaxError returns the parser's error with its position, but without its excerpt of the text, which may contain secrets.
func syntaxError(err error) error {
	var parsed yaml.Error
	if !errors.As(err, &parsed) {
		return &Error{Text: "the text is not YAML"}
	}
	message, _, _ := strings.Cut(parsed.GetMessage(), "\n")
	for _, w := range wordings {
		if strings.HasPrefix(message, w.parser) {
			message = w.ours
		}
	}
	at := 0
	if t := parsed.GetToken(); t != nil && t.Position != nil {
		at = t.Position.Line
	}
	return &Error{Line: at, Text: message}
}
