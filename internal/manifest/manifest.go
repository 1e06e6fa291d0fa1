// Package manifest reads sandboxes written in YAML: whole manifests for the CLI, bare specs for config_yaml.
//
// Reading is strict. Every key must be a field of the proto by its name there, none may occur twice, and every value
// must have the field's type. An error names the line and the path, and never repeats a value that may be a secret.
package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// The only version and kind there are.
const (
	APIVersion = "agbox/v1"
	Kind       = "Sandbox"
)

// Sandbox is one document.
type Sandbox struct {
	// Name is metadata.name; never empty.
	Name string
	// Spec is the spec with metadata.labels merged in and "~" expanded in host paths.
	Spec *agboxv1.CreateSpec
	// Line is where the document begins in its file, from 1.
	Line int
}

// Error is a mistake in a text.
type Error struct {
	// Line counts from 1; 0 when the mistake is in the text as a whole.
	Line int
	// Path of the field, such as "spec.mounts[0].target"; empty when there is none.
	Path string
	// Text says what is wrong.
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

// Parse reads the manifests of one text, at least one. Empty documents between "---" are skipped. home is what "~"
// stands for in host paths; where it is empty, "~" is an error.
func Parse(text []byte, home string) ([]Sandbox, error) {
	docs, err := documents(text, len(text))
	if err != nil {
		return nil, err
	}
	var all []Sandbox
	for _, doc := range docs {
		one, err := parseDocument(doc, home)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, &Error{Text: "the text is empty"}
	}
	return all, nil
}

// ParseSpec reads one bare spec, which may not be empty. home is as in Parse.
func ParseSpec(text []byte, home string) (*agboxv1.CreateSpec, error) {
	docs, err := documents(text, 2)
	switch {
	case err != nil:
		return nil, err
	case len(docs) == 0:
		return nil, &Error{Text: "the text is empty"}
	case len(docs) > 1:
		return nil, &Error{Line: line(docs[1]), Text: "a second document; there must be one"}
	}
	spec := &agboxv1.CreateSpec{}
	if err := newDecoder().message(docs[0], "", spec.ProtoReflect()); err != nil {
		return nil, err
	}
	return spec, expandHome(spec, "", home)
}

func parseDocument(doc ast.Node, home string) (Sandbox, error) {
	e := envelope{decoder: newDecoder(), spec: &agboxv1.CreateSpec{}, labels: map[string]string{}}
	if err := e.read(doc); err != nil {
		return Sandbox{}, err
	}
	if err := e.mergeLabels(); err != nil {
		return Sandbox{}, err
	}
	if err := expandHome(e.spec, "spec.", home); err != nil {
		return Sandbox{}, err
	}
	return Sandbox{Name: e.name, Spec: e.spec, Line: line(doc)}, nil
}

// Merge returns base with everything that over has: scalars, messages and lists replace, maps merge per key. Neither
// argument is changed; nil counts as empty.
func Merge(base, over *agboxv1.CreateSpec) *agboxv1.CreateSpec {
	out := &agboxv1.CreateSpec{}
	proto.Merge(out, base)
	dst := out.ProtoReflect()
	over = proto.CloneOf(over)
	over.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !fd.IsMap() {
			dst.Set(fd, v)
			return true
		}
		v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			dst.Mutable(fd).Map().Set(key, value)
			return true
		})
		return true
	})
	dst.SetUnknown(append(dst.GetUnknown(), over.ProtoReflect().GetUnknown()...))
	return out
}

// expandHome replaces a leading "~" of host paths. prefix leads to the spec in error paths.
func expandHome(spec *agboxv1.CreateSpec, prefix, home string) error {
	for i, m := range spec.GetMounts() {
		if err := expand(&m.Source, home, fmt.Sprintf("%smounts[%d].source", prefix, i)); err != nil {
			return err
		}
	}
	for i, c := range spec.GetCopies() {
		if err := expand(&c.Source, home, fmt.Sprintf("%scopies[%d].source", prefix, i)); err != nil {
			return err
		}
	}
	return nil
}

func expand(p *string, home, path string) error {
	switch {
	case !strings.HasPrefix(*p, "~"):
		return nil
	case *p != "~" && !strings.HasPrefix(*p, "~/"):
		return &Error{Path: path, Text: `only "~" and "~/..." are known, not the homes of other users`}
	case home == "":
		return &Error{Path: path, Text: `"~" cannot be expanded: the home directory is not known`}
	}
	*p = filepath.Join(home, strings.TrimPrefix(*p, "~"))
	return nil
}

// Home returns the home directory of the calling user, or "" when it is not known.
func Home() string {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return home
}
