package manifest

import (
	"fmt"
	"maps"

	"github.com/goccy/go-yaml/ast"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// envelope reads what surrounds a spec.
type envelope struct {
	*decoder
	version, kind, name string
	labels              map[string]string
	spec                *agboxv1.CreateSpec
}

func (e *envelope) read(doc ast.Node) error {
	fields, err := e.entries(doc, "")
	if err != nil {
		return err
	}
	for _, kindFirst := range []bool{true, false} { // of another kind's document no other key can be judged
		for _, f := range fields {
			if (f.key == "apiVersion" || f.key == "kind") != kindFirst {
				continue
			}
			if err := e.field(f); err != nil {
				return err
			}
		}
		if err := e.known(line(doc)); err != nil {
			return err
		}
	}
	if e.name == "" {
		return &Error{Line: line(doc), Path: "metadata.name", Text: "is required"}
	}
	return nil
}

func (e *envelope) field(f entry) (err error) {
	switch f.key {
	case "apiVersion":
		e.version, err = e.text(f.value, f.key)
	case "kind":
		e.kind, err = e.text(f.value, f.key)
	case "metadata":
		err = e.metadata(f)
	case "spec":
		err = e.message(f.value, f.key, e.spec.ProtoReflect())
	case "status": // as printed by "agbox get -o yaml"; it is the daemon's to say
	default:
		err = unknown(f, "", "apiVersion, kind, metadata, spec")
	}
	return err
}

func (e *envelope) metadata(f entry) error {
	fields, err := e.entries(f.value, f.key)
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
			err = unknown(f, "metadata", "name, labels")
		}
		if err != nil {
			return err
		}
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
		return &Error{Line: at, Path: "kind", Text: fmt.Sprintf("is required; write %q", Kind)}
	case e.kind != Kind:
		return &Error{Line: at, Path: "kind", Text: fmt.Sprintf("%q is not known; this version reads %q", e.kind, Kind)}
	}
	return nil
}

// mergeLabels puts metadata.labels into the spec. Two places that disagree are a mistake, not a precedence.
func (e *envelope) mergeLabels() error {
	for key, value := range e.labels {
		if other, both := e.spec.GetLabels()[key]; both && other != value {
			return &Error{Path: "metadata.labels." + key, Text: fmt.Sprintf("differs from spec.labels.%s; keep one of them", key)}
		}
	}
	if e.spec.Labels == nil && len(e.labels) > 0 {
		e.spec.Labels = map[string]string{}
	}
	maps.Copy(e.spec.Labels, e.labels)
	return nil
}
