// Command reference prints docs/reference.md: lists for operators and clients, extracted from the code. It runs in the root of the
// repository; make generate writes the page, and a test fails if the page is out of date.
package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/template"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/metrics"
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
	Metrics  []metrics.Info
	Reasons  []constant
	Steps    []plan.Kind
	Errors   []code
	Failures []code
	States   []sandboxstate.Info
	Enums    []enum
	Tools    []validate.Tool
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
	return text.Execute(w, page{
		Metrics: allMetrics(), Reasons: reasons, Steps: plan.Kinds(), Errors: errorReasons, Failures: failureCodes,
		States: sandboxstate.All(), Tools: validate.Tools(),
		Enums: []enum{
			{"Exec states", values(agboxv1.ExecState(0).Descriptor(), "EXEC_STATE_")},
			{"Agent states", values(agboxv1.AgentState(0).Descriptor(), "AGENT_STATE_")},
			{"Events", values(agboxv1.EventType(0).Descriptor(), "")},
		},
	})
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

//go:embed page.md.tmpl
var pageText string

var text = template.Must(template.New("page").Funcs(template.FuncMap{"code": func(names []string) string {
	return "`" + strings.Join(names, "`, `") + "`"
}}).Parse(pageText))

// allMetrics returns the metrics of agboxd by name.
func allMetrics() []metrics.Info {
	list := slices.DeleteFunc(metrics.All(), func(m metrics.Info) bool { return !strings.HasPrefix(m.Name, "agboxd_") })
	slices.SortFunc(list, func(a, b metrics.Info) int { return strings.Compare(a.Name, b.Name) })
	return list
}
