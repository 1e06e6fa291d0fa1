package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/manifest"
	"github.com/agbox/agbox/internal/termsafe"
)

// kindDocument is a sandbox or an agent as a manifest, with its status.
type kindDocument struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec"`
	Status     json.RawMessage `json:"status"`
}

type metadata struct {
	Name   string            `json:"name,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// sandboxParts is kind.parts.
func sandboxParts(sb *agboxv1.SandboxHandle) (spec, status proto.Message) {
	s, st := proto.CloneOf(sb.GetSpec()), proto.CloneOf(sb)
	st.Labels, st.Spec, st.Name, st.RequiredServices, st.OptionalServices = nil, nil, "", nil, nil
	if s != nil {
		s.Labels = nil
	}
	return s, st
}

// agentParts is kind.parts.
func agentParts(one *agboxv1.AgentHandle) (spec, status proto.Message) {
	s, st := proto.CloneOf(one.GetSpec()), proto.CloneOf(one)
	st.Labels, st.Spec, st.Name = nil, nil, ""
	if s != nil {
		s.Labels = nil
	}
	return s, st
}

// document is the manifest of an object that has its spec.
func (k kind[H]) document(one H) (kindDocument, error) {
	spec, status := k.parts(one)
	text, err := manifest.JSON(spec)
	if err != nil {
		return kindDocument{}, fmt.Errorf("encode spec of %s: %w", k.id(one), err)
	}
	rest, err := manifest.JSON(status)
	if err != nil {
		return kindDocument{}, fmt.Errorf("encode status of %s: %w", k.id(one), err)
	}
	return kindDocument{
		APIVersion: manifest.APIVersion, Kind: k.title, Metadata: metadata{Name: one.GetName(), Labels: one.GetLabels()}, Spec: text, Status: rest,
	}, nil
}

// printDocuments prints one object when one was asked for by name, otherwise a list, or a YAML stream. Templates see what JSON has.
func printDocuments[H handle](ctx context.Context, a *app, k kind[H], found []H, single bool, o *output) error {
	docs, err := documents(ctx, k, found)
	if err != nil {
		return err
	}
	return a.printKinds(docs, single, o)
}

// documents returns the manifests of objects as they are now.
func documents[H handle](ctx context.Context, k kind[H], found []H) ([]kindDocument, error) {
	docs := make([]kindDocument, 0, len(found))
	for _, one := range found {
		full, err := k.read(ctx, k.id(one)) // lists come without specs
		if client.IsNotFound(err) {
			continue // purged since the list
		}
		if err != nil {
			return nil, err
		}
		doc, err := k.document(full)
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	return docs, nil
}

// printApplied prints the applied objects as they are now.
func (a *app) printApplied(ctx context.Context, there *applied, o *output, single bool) error {
	if o.format == "name" {
		for _, sb := range there.sandboxes {
			fmt.Fprintln(a.Out, a.sandboxKind().label(sb))
		}
		for _, one := range there.agents {
			fmt.Fprintln(a.Out, a.agentKind().label(one))
		}
		return nil
	}
	docs, err := documents(ctx, a.sandboxKind(), there.sandboxes)
	if err != nil {
		return err
	}
	agents, err := documents(ctx, a.agentKind(), there.agents)
	if err != nil {
		return err
	}
	return a.printKinds(append(docs, agents...), single, o)
}

func (a *app) printKinds(docs []kindDocument, single bool, o *output) error {
	if o.format == "yaml" {
		return a.printYAML(docs, o)
	}
	if single && len(docs) == 1 {
		return a.printAs(docs[0], o)
	}
	return a.printAs(map[string]any{"apiVersion": manifest.APIVersion, "kind": "List", "items": docs}, o)
}

func (a *app) printYAML(docs []kindDocument, o *output) error {
	for i, doc := range docs {
		if i > 0 {
			fmt.Fprintln(a.Out, "---")
		}
		if err := a.printAs(doc, o); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printJSON(v any) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode as JSON: %w", err)
	}
	_, err := a.Out.Write(termsafe.JSON(out.Bytes()))
	return err
}
