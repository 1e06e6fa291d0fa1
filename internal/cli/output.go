package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/util/jsonpath"

	"github.com/agbox/agbox/internal/manifest"
)

// output is the value of -o: a name of a closed set, or a template with its expression.
type output struct {
	format   string // "" without -o, "jsonpath" or "go-template" for a template
	template func(io.Writer, any) error
	allowed  []string
}

// objectFormats are the formats of verbs that list objects, as in kubectl.
var objectFormats = []string{"wide", "yaml", "json", "name", "jsonpath=", "jsonpath-file=", "go-template=", "go-template-file="}

// listFormats are the formats of other lists. JSON is one object a line; a template sees them all as items.
var listFormats = []string{"json", "name", "jsonpath=", "jsonpath-file=", "go-template=", "go-template-file="}

// outputFlag adds -o. Formats that end in "=" take an expression or a file.
func outputFlag(cmd *cobra.Command, allowed ...string) *output {
	o := &output{allowed: allowed}
	cmd.Flags().VarP(o, "output", "o", "output format: "+strings.Join(allowed, ", "))
	completeFlag(cmd, "output", allowed...)
	return o
}

// Set implements pflag.Value.
func (o *output) Set(text string) error {
	kind, expression, template := strings.Cut(text, "=")
	switch {
	case slices.Contains(o.allowed, text) && !template:
		o.format, o.template = text, nil
		return nil
	case slices.Contains(o.allowed, kind+"=") && expression == "":
		return fmt.Errorf("write %s=%s", kind, strings.ToUpper(placeholder(kind)))
	case !slices.Contains(o.allowed, kind+"="):
		return fmt.Errorf("known are %s", strings.Join(o.allowed, ", "))
	}
	if of, isFile := strings.CutSuffix(kind, "-file"); isFile {
		content, err := os.ReadFile(expression)
		if err != nil {
			return readError(expression, err)
		}
		kind, expression = of, string(content)
	}
	parse := parseJSONPath
	if kind == "go-template" {
		parse = parseGoTemplate
	}
	execute, err := parse(expression)
	o.format, o.template = kind, execute
	return err
}

func placeholder(kind string) string {
	if strings.HasSuffix(kind, "-file") {
		return "file"
	}
	return "template"
}

// String implements pflag.Value.
func (o *output) String() string { return o.format }

// Type is the word for a value in help texts.
func (*output) Type() string { return "format" }

// given reports whether the objects are to be printed in another form than a table.
func (o *output) given() bool { return o.format != "" && o.format != "wide" }

// parseJSONPath reads a template of kubectl. An expression without braces is a path, which kubectl would print as it is.
func parseJSONPath(text string) (func(io.Writer, any) error, error) {
	if !strings.Contains(text, "{") {
		text = "{." + strings.TrimPrefix(text, ".") + "}"
	}
	path := jsonpath.New("jsonpath").AllowMissingKeys(true)
	return path.Execute, path.Parse(text)
}

func parseGoTemplate(text string) (func(io.Writer, any) error, error) {
	t, err := template.New("go-template").Parse(text)
	if err != nil {
		return nil, err
	}
	return t.Execute, nil
}

// printAs prints a value as JSON, as YAML, or what a template makes of its JSON.
func (a *app) printAs(v any, o *output) error {
	if o.format == "json" {
		return a.printJSON(v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode as JSON: %w", err)
	}
	if o.format == "yaml" {
		if text, err = toYAML(text); err == nil {
			_, err = a.Out.Write(text)
		}
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var plain any
	if err := dec.Decode(&plain); err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	var out bytes.Buffer
	if err := o.template(&out, numbers(plain)); err != nil {
		return fmt.Errorf("-o %s: %w; \"-o json\" shows what there is", o.format, err)
	}
	return a.printText(out.String())
}

// printList prints messages in one of listFormats, except "name".
func printList[M proto.Message](a *app, list []M, o *output) error {
	if o.format == "json" {
		return printLines(a.Out, list)
	}
	items, err := rawList(list)
	if err != nil {
		return err
	}
	return a.printAs(map[string]any{"items": items}, o)
}

func rawList[M proto.Message](list []M) ([]json.RawMessage, error) {
	items := make([]json.RawMessage, len(list))
	for i, one := range list {
		var err error
		if items[i], err = manifest.JSON(one); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// numbers turns the numbers of a JSON value into int64, or float64 where that is not possible, so that templates print and compare them.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, one := range v {
			v[key] = numbers(one)
		}
	case []any:
		for i, one := range v {
			v[i] = numbers(one)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		n, _ := v.Float64() // it was written by encoding/json
		return n
	}
	return v
}
