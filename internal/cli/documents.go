package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/manifest"
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

var protoJSON = protojson.MarshalOptions{UseProtoNames: true}

func newDocument(sb *agboxv1.SandboxHandle) (kindDocument, error) {
	spec, status := &agboxv1.CreateSpec{}, proto.CloneOf(sb)
	proto.Merge(spec, sb.GetSpec())
	spec.Labels, status.Labels = nil, nil // in the metadata
	status.Spec, status.Name, status.RequiredServices, status.OptionalServices = nil, "", nil, nil
	doc := kindDocument{
		APIVersion: manifest.APIVersion, Kind: manifest.Kind,
		Metadata: metadata{Name: sb.GetName(), Labels: maps.Clone(sb.GetLabels())},
	}
	var err error
	if doc.Spec, err = manifest.SpecJSON(spec); err != nil {
		return doc, fmt.Errorf("encode spec of %s: %w", sb.GetSandboxId(), err)
	}
	if doc.Status, err = protoJSON.Marshal(status); err != nil {
		return doc, fmt.Errorf("encode status of %s: %w", sb.GetSandboxId(), err)
	}
	return doc, nil
}

// printDocuments prints one object when one was asked for by name, otherwise a JSON list or a YAML stream.
func printDocuments[H handle](ctx context.Context, a *app, k kind[H], found []H, single bool, output string) error {
	docs := make([]kindDocument, 0, len(found))
	for _, one := range found {
		full, err := k.read(ctx, k.id(one)) // lists come without specs
		if client.IsNotFound(err) {
			continue // purged since the list
		}
		if err != nil {
			return err
		}
		doc, err := k.document(full)
		if err != nil {
			return err
		}
		docs = append(docs, doc)
	}
	return a.printKinds(docs, single, output)
}

func (a *app) printKinds(docs []kindDocument, single bool, output string) error {
	if output == "yaml" {
		return a.printYAML(docs)
	}
	if single && len(docs) == 1 {
		return a.printJSON(docs[0])
	}
	return a.printJSON(map[string]any{"apiVersion": manifest.APIVersion, "kind": "List", "items": docs})
}

func (a *app) printYAML(docs []kindDocument) error {
	for i, doc := range docs {
		text, err := doc.yaml()
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(a.Out, "---")
		}
		fmt.Fprint(a.Out, string(text))
	}
	return nil
}

func (d kindDocument) yaml() ([]byte, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return toYAML(text)
}

func (a *app) printJSON(v any) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode as JSON: %w", err)
	}
	_, err := a.Out.Write(escapeUnseen(out.Bytes()))
	return err
}
