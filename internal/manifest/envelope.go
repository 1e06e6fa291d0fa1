package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/nearest"
)

// envelope reads the fields around a spec.
type envelope struct {
	*decoder
	version, kind, name string
	labels              map[string]string
	sandbox             *agboxv1.CreateSpec // at most one is set; both are nil before the kind is known
	agent               *agboxv1.AgentSpec
	into                protoreflect.Message // the one that is set
}

func (e *envelope) read(doc ast.Node) error {
	fields, err := e.entries(doc, "", "")
	if err != nil {
		return err
	}
	for _, kindFirst := range []bool{true, false} { // other keys can be checked only if the kind is known
		for _, f := range fields {
			if (f.key == "apiVersion" || f.key == "kind") != kindFirst {
				continue
			}
			if err := e.keep(e.field(f)); err != nil {
				return err
			}
		}
		if err := e.known(line(doc)); err != nil && len(e.mistakes) == 0 {
			return err
		}
	}
	if e.name == "" && len(e.mistakes) == 0 {
		return &Error{Line: line(doc), Path: "metadata.name", Text: "is required"}
	}
	return e.mergeLabels()
}

func (e *envelope) field(f entry) (err error) {
	switch f.key {
	case "apiVersion":
		e.version, err = e.text(f.value, f.key)
	case "kind":
		e.kind, err = e.text(f.value, f.key)
		e.begin()
	case "metadata":
		err = e.metadata(f)
	case "spec":
		if e.into != nil { // a spec of an unknown kind cannot be checked
			err = e.message(f.value, f.key, e.into)
		}
	case "status": // "agbox get -o yaml" prints it; ignored, because only agboxd sets it
	default:
		err = unknown(f, "", []string{"apiVersion", "kind", "metadata", "spec"})
	}
	return err
}

// begin creates the empty spec of a known kind.
func (e *envelope) begin() {
	switch e.kind {
	case Kind:
		e.sandbox = &agboxv1.CreateSpec{}
		e.into = e.sandbox.ProtoReflect()
	case KindAgent:
		e.agent = &agboxv1.AgentSpec{}
		e.into = e.agent.ProtoReflect()
	}
}

func (e *envelope) metadata(f entry) error {
	fields, err := e.entries(f.value, f.key, "{name: web}")
	if err != nil {
		return err
	}
	for _, f := range fields {
		switch f.key {
		case "name":
			e.name, err = e.text(f.value, "metadata.name")
		case "labels":
			e.labels, err = e.stringMap(f.value, "metadata.labels")
		default:
			err = unknown(f, "metadata", []string{"name", "labels"})
		}
		if err := e.keep(err); err != nil {
			return err
		}
	}
	return nil
}

// known refuses a document with another version or an unknown kind.
func (e *envelope) known(at int) error {
	switch {
	case e.version == "":
		return &Error{Line: at, Path: "apiVersion", Text: fmt.Sprintf("is required; write %q", APIVersion)}
	case e.version != APIVersion:
		return &Error{Line: at, Path: "apiVersion", Text: fmt.Sprintf("%q is not known; this version reads %q", e.version, APIVersion)}
	case e.kind == "":
		return &Error{Line: at, Path: "kind", Text: fmt.Sprintf("is required; write %q or %q", Kind, KindAgent)}
	case e.into == nil:
		text := fmt.Sprintf("%q is not known; this version reads %q and %q", e.kind, Kind, KindAgent)
		if meant := nearest.Of(e.kind, []string{Kind, KindAgent}); meant != "" {
			text = fmt.Sprintf("%q is not known; did you mean %q?", e.kind, meant)
		}
		return &Error{Line: at, Path: "kind", Text: text}
	}
	return nil
}

// mergeLabels copies metadata.labels into the spec. Contradictory labels in the two places are a mistake; neither takes precedence.
func (e *envelope) mergeLabels() error {
	if len(e.labels) == 0 || e.into == nil {
		return nil
	}
	into := e.into.Mutable(e.into.Descriptor().Fields().ByName("labels")).Map()
	path := func(name string) string { return "metadata.labels." + name }
	at := func(name string) int { return e.lines[fieldPath(path(name))] }
	inOrder := func(a, b string) int { return cmp.Or(at(a)-at(b), strings.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(e.labels), inOrder) {
		var err error
		key, value := protoreflect.ValueOfString(name).MapKey(), protoreflect.ValueOfString(e.labels[name])
		if into.Has(key) && !into.Get(key).Equal(value) {
			err = &Error{Line: at(name), Path: path(name), Text: fmt.Sprintf("differs from spec.labels.%s; keep one of them", name)}
		}
		if err := e.keep(err); err != nil {
			return err
		}
		into.Set(key, value)
	}
	return nil
}
