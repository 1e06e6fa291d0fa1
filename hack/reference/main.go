// Command reference prints docs/reference.md: lists for operators and clients, extracted from the code. It runs in the root of the
// repository; make generate writes the page, and a test fails if the page is out of date.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/template"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/sandboxstate"
)

func main() {
	if err := write(os.Stdout, "."); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// page holds the data of the template.
type page struct {
	Metrics  []metric
	Reasons  []constant
	Steps    []constant
	Errors   []code
	Failures []code
	States   []sandboxstate.Info
	Enums    []enum
}

type enum struct {
	Title  string
	Values []string
}

// write extracts the lists from the code below root and writes the page.
func write(w io.Writer, root string) error {
	reasons, err := constantsOf(root+"/controller/plan/step.go", "Reason")
	if err != nil {
		return err
	}
	steps, err := constantsOf(root+"/controller/plan/step.go", "Kind")
	if err != nil {
		return err
	}
	metrics, err := allMetrics()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := text.Execute(&out, page{
		Metrics: metrics, Reasons: reasons, Steps: steps, Errors: errorReasons, Failures: failureCodes,
		States: sandboxstate.All(),
		Enums: []enum{
			{"Exec states", values(agboxv1.ExecState(0).Descriptor(), "EXEC_STATE_")},
			{"Agent states", values(agboxv1.AgentState(0).Descriptor(), "AGENT_STATE_")},
			{"Events", values(agboxv1.EventType(0).Descriptor(), "")},
		},
	}); err != nil {
		return err
	}
	_, err = w.Write(out.Bytes())
	return err
}

// values returns the names of an enum's values without their prefix, except UNSPECIFIED.
func values(e protoreflect.EnumDescriptor, prefix string) []string {
	var names []string
	for i := range e.Values().Len() {
		name := strings.TrimPrefix(string(e.Values().Get(i).Name()), prefix)
		if !strings.HasSuffix(name, "UNSPECIFIED") {
			names = append(names, name)
		}
	}
	return names
}

var text = template.Must(template.New("page").Funcs(template.FuncMap{"code": func(names []string) string {
	return "`" + strings.Join(names, "`, `") + "`"
}}).Parse(`# Reference

Generated from the code by ` + "`make generate`" + `; do not edit. Configuration keys are in [configuration.md](configuration.md), the keys of a
manifest, and which of them change in place, in [sandbox.md](sandbox.md).

## States and events

A sandbox is in one of these states; agboxd refuses any other transition. Sandboxes in the states with a yes are counted in
` + "`agboxd_sandboxes`" + `. A new sandbox is PENDING; one whose record was rebuilt starts in any of the counted states.

| sandbox state | | counted | transitions |
|---|---|---|---|
{{range .States}}| ` + "`{{.Word}}`" + ` | {{.Meaning}} | {{if .Metric}}yes{{end}} | {{range $i, $m := .Moves}}{{if $i}}, {{end}}{{$m}}{{end}} |
{{end}}
{{range .Enums}}
- {{.Title}}: {{code .Values}}
{{- end}}

## Reasons of refused calls

Each refused call carries a google.rpc.ErrorInfo with the domain ` + "`agents-sandbox`" + ` and one of these reasons, or the name of its gRPC code.

| reason | when |
|---|---|
{{range .Errors}}| ` + "`{{.Name}}`" + ` | {{.When}} |
{{end}}
## Codes of failures

The ` + "`error_code`" + ` of a sandbox, a service or an exec that failed.

| code | when |
|---|---|
{{range .Failures}}| ` + "`{{.Name}}`" + ` | {{.When}} |
{{end}}
## Metrics

` + "`agboxd_*`" + ` metrics; ` + "`workqueue_*`" + ` are those of client-go.

| metric | type | labels | |
|---|---|---|---|
{{range .Metrics}}| ` + "`{{.Name}}`" + ` | {{.Type}} | {{if .Labels}}{{code .Labels}}{{end}} | {{.Help}} |
{{end}}
## Steps and reasons in audit lines

` + "`agbox explain`" + ` shows the same steps and reasons.

Steps: {{range $i, $s := .Steps}}{{if $i}}, {{end}}` + "`{{$s.Value}}`" + `{{end}}.

| reason | |
|---|---|
{{range .Reasons}}| ` + "`{{.Value}}`" + ` | {{.Comment}} |
{{end}}`))
