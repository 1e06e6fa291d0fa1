package manifest

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// envelope reads what surrounds a spec.
type envelope struct {
	*decoder
	version, kind, name string
	labels              []label
	sandbox             *agboxv1.CreateSpec // of a kind each; nil before the kind is known
	agent               *agboxv1.AgentSpec
}

// label is one of metadata.labels.
type label struct {
	key, value string
	line       int
}

func (e *envelope) read(doc ast.Node) error {
	fields, err := e.entries(doc, "", "")
	if err != nil {
		return err
	}
	for _, kindFirst := range []bool{true, false} { // of another kind's document no other key can be judged
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
		err = e.spec(f)
	case "status": // as printed by "agbox get -o yaml"; it is the daemon's to say
	default:
		err = unknown(f, "", "apiVersion, kind, metadata, spec")
	}
	return err
}

// begin makes the empty spec of the kind, if it is one of ours.
func (e *envelope) begin() {
	switch e.kind {
	case Kind:
		e.sandbox = &agboxv1.CreateSpec{}
	case KindAgent:
		e.agent = &agboxv1.AgentSpec{}
	}
}

// spec reads the spec. Of a kind that is not known it can't be judged.
func (e *envelope) spec(f entry) error {
	switch {
	case e.agent != nil:
		return e.message(f.value, f.key, e.agent.ProtoReflect())
	case e.sandbox != nil:
		return e.message(f.value, f.key, e.sandbox.ProtoReflect())
	}
	return nil
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
			err = e.readLabels(f.value)
		default:
			err = unknown(f, "metadata", "name, labels")
		}
		if err := e.keep(err); err != nil {
			return err
		}
	}
	return nil
}

func (e *envelope) readLabels(node ast.Node) error {
	fields, err := e.entries(node, "metadata.labels", mapForm)
	if err != nil {
		return err
	}
	for _, f := range fields {
		value, err := e.text(f.value, "metadata.labels."+f.key)
		if err := e.keep(err); err != nil {
			return err
		}
		e.labels = append(e.labels, label{key: f.key, value: value, line: f.line})
	}
	return nil
}

// known refuses a document that is not ours.
func (e *envelope) known(at int) error {
	switch {
	case e.version == "":
		return &Error{Line: at, Path: "apiVersion", Text: fmt.Sprintf("is required; write %q", APIVersion)}
	case e.version != APIVersion:
		return &Error{Line: at, Path: "apiVersion", Text: fmt.Sprintf("%q is not known; this version reads %q", e.version, APIVersion)}
	case e.kind == "":
		return &Error{Line: at, Path: "kind", Text: fmt.Sprintf("is required; write %q or %q", Kind, KindAgent)}
	case e.sandbox == nil && e.agent == nil:
		return &Error{Line: at, Path: "kind", Text: fmt.Sprintf("%q is not known; this version reads %q and %q", e.kind, Kind, KindAgent)}
	}
	return nil
}

// mergeLabels puts metadata.labels into the spec. Two places that disagree are a mistake, not a precedence.
func (e *envelope) mergeLabels() error {
	if len(e.labels) == 0 || e.sandbox == nil && e.agent == nil {
		return nil
	}
	into := e.specLabels()
	for _, l := range e.labels {
		var err error
		if other, both := into[l.key]; both && other != l.value {
			err = &Error{Line: l.line, Path: "metadata.labels." + l.key, Text: fmt.Sprintf("differs from spec.labels.%s; keep one of them", l.key)}
		}
		if err := e.keep(err); err != nil {
			return err
		}
		into[l.key] = l.value
	}
	return nil
}

// specLabels are the labels of the spec, to be added to.
func (e *envelope) specLabels() map[string]string {
	var labels *map[string]string
	if e.agent != nil {
		labels = &e.agent.Labels
	} else {
		labels = &e.sandbox.Labels
	}
	if *labels == nil {
		*labels = map[string]string{}
	}
	return *labels
}
