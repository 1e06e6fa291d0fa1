package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

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
	spec, status := proto.CloneOf(sb.GetSpec()), proto.CloneOf(sb)
	status.Labels, status.Spec, status.Name, status.RequiredServices, status.OptionalServices = nil, nil, "", nil, nil
	if spec != nil {
		spec.Labels = nil // they are in the metadata
	}
	text, err := manifest.SpecJSON(spec)
	return documentOf(manifest.Kind, sb, sb.GetSandboxId(), text, err, status)
}

// documentOf completes the document of a handle; err is that of writing its spec.
func documentOf[H handle](kind string, one H, id string, spec json.RawMessage, err error, status proto.Message) (kindDocument, error) {
	if err != nil {
		return kindDocument{}, fmt.Errorf("encode spec of %s: %w", id, err)
	}
	text, err := protoJSON.Marshal(status)
	if err != nil {
		return kindDocument{}, fmt.Errorf("encode status of %s: %w", id, err)
	}
	return kindDocument{
		APIVersion: manifest.APIVersion, Kind: kind, Metadata: metadata{Name: one.GetName(), Labels: one.GetLabels()}, Spec: spec, Status: text,
	}, nil
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
