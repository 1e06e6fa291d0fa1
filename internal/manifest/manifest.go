// Package manifest parses YAML manifests of sandboxes and agents for the CLI, and bare specs for config_yaml.
//
// Parsing is strict: every key must be a proto field name, no key may occur twice, and every value must have the field's type. An error
// names the line and the path, and never repeats a value, which may be a secret.
package manifest

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml/ast"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// The supported version and kinds.
const (
	APIVersion = "agbox/v1"
	Kind       = "Sandbox"
	KindAgent  = "Agent"
)

// Document is a sandbox or an agent.
type Document struct {
	// Name is metadata.name; never empty.
	Name string
	// Spec is the spec of a sandbox with metadata.labels merged in and "~" expanded in host paths; nil for an agent.
	Spec *agboxv1.CreateSpec
	// Agent is the spec of an agent with metadata.labels merged in; nil for a sandbox.
	Agent *agboxv1.AgentSpec
	// Line is the line where the document starts in its file, from 1.
	Line int

	lines map[string]int // see decoder
}

// Parse reads the manifests of one text, at least one. It skips empty documents between "---". home replaces "~" in host paths; if it is
// empty, "~" is an error. Errors: *Error for text that is not YAML, otherwise Errors with the mistakes of all documents.
func Parse(text []byte, home string) ([]Document, error) {
	docs, err := documents(text, len(text))
	if err != nil {
		return nil, err
	}
	var all []Document
	var mistakes Errors
	for _, doc := range docs {
		one, err := parseDocument(doc, home)
		var broken Errors
		if err != nil && !errors.As(err, &broken) {
			return nil, err
		}
		mistakes = append(mistakes, broken...)
		all = append(all, one)
	}
	if len(mistakes) > 0 {
		return nil, mistakes
	}
	if len(all) == 0 {
		return nil, &Error{Text: "the text is empty"}
	}
	return all, nil
}

// ParseSpec reads one bare spec, which must not be empty. For home, see Parse.
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
	spec, d := &agboxv1.CreateSpec{}, newDecoder(home)
	if err := d.outcome(d.message(docs[0], "", spec.ProtoReflect())); err != nil {
		return nil, err
	}
	return spec, nil
}

func parseDocument(doc ast.Node, home string) (Document, error) {
	e := envelope{decoder: newDecoder(home)}
	e.lines = map[string]int{}
	if err := e.outcome(e.read(doc)); err != nil {
		return Document{}, err
	}
	return Document{Name: e.name, Spec: e.sandbox, Agent: e.agent, Line: line(doc), lines: e.lines}, nil
}

// Merge returns base with all fields that are set in over: scalars, messages and lists replace, maps merge per key. It changes neither
// argument; nil counts as empty.
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

// Home returns the home directory of the calling user, or "" if it is unknown.
func Home() string {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return home
}

// Upper bounds of the memory, in bytes, that parsing allocates for each byte of a text, and for each line and each YAML mark. They were
// measured with texts that repeat one mark.
const (
	costOfByte = 25
	costOfMark = 700
)

// ParseCost returns an upper bound of the memory, in bytes, that parsing a text allocates. It does not parse, so it also counts characters
// inside quoted values that look like marks.
func ParseCost(text []byte) int64 {
	marks := int64(0)
	for i, c := range text {
		switch c {
		case '\n', '\r', '[', ']', '{', '}', ',', '#', '&', '*', '!', '|', '>', '%', '@', '`', '?', '"', '\'':
			marks++
		case ':', '-': // no marks within words
			if i+1 == len(text) || text[i+1] <= ' ' {
				marks++
			}
		}
	}
	return costOfByte*int64(len(text)) + costOfMark*marks
}
