package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	enumvalues "github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/exec"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/channel/hub"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/internal/server"
)

const root = "../.."

func TestReferencePageIsUpToDate(t *testing.T) {
	var want bytes.Buffer
	if err := write(&want, root); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(root + "/docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/reference.md is out of date: make generate")
	}
}

// The page also has metrics that another function registers.
func TestReferencePageHasEveryMetric(t *testing.T) {
	list := allMetrics()
	for _, text := range literals(t, root+"/internal/metrics") {
		if strings.HasPrefix(text, "agboxd_") && !slices.ContainsFunc(list, func(m metrics.Info) bool { return m.Name == text }) {
			t.Errorf("%s is not on the page", text)
		}
	}
	for _, m := range list {
		if counter := strings.HasSuffix(m.Name, "_total"); counter != (m.Type == "counter") {
			t.Errorf("%s is a %s", m.Name, m.Type)
		}
	}
}

// The tables contain exactly the codes of the packages that create them.
func TestReferencePageHasEveryCode(t *testing.T) {
	var listed, said []string
	for _, c := range slices.Concat(errorReasons, failureCodes) {
		listed = append(listed, c.Name)
	}
	word := regexp.MustCompile(`^(SANDBOX|CONTAINER|NETWORK|EXEC|AGENT|AGENTS|PROMPT|DRAIN|DISK|VOLUME|SNAPSHOT|TEMPLATE|ENGINE|INVALID|FILE|ARCHIVE|WATCH|PORT|USER|STREAM|CHANNEL|GATEWAY|CALLER)_[A-Z_]*[A-Z]$|^DRAINING$`)
	for _, dir := range []string{"store", "controller", "internal/server", "internal/channel", "internal/recovery", "internal/host/execjournal"} {
		for _, text := range literals(t, filepath.Join(root, dir)) {
			if word.MatchString(text) {
				said = append(said, text)
			}
		}
	}
	slices.Sort(listed)
	slices.Sort(said)
	said = slices.Compact(said)
	for _, name := range listed {
		if !slices.Contains(said, name) {
			t.Errorf("%s is on the page and not in the code", name)
		}
	}
	for _, name := range said {
		if !slices.Contains(listed, name) {
			t.Errorf("%s is in the code and not on the page", name)
		}
	}
}

// The lists of label values, which are written by hand, have each constant of their kind. A value that is missing has no zero on /metrics.
func TestEveryConstantIsInItsList(t *testing.T) {
	for _, row := range []struct {
		file, name string // name matches the names of the constants
		list       []string
	}{
		{"controller/plan/step.go", `^[A-Z].*: Kind$`, texts(plan.Kinds())},
		{"controller/agentplan/types.go", `^[A-Z].*: Kind$`, texts(agentplan.Kinds())},
		{"internal/host/clockjump/clockjump.go", `^[A-Z].*: Kind$`, append(texts(clockjump.Jumps()), string(clockjump.Returned), string(clockjump.Believed))},
		{"internal/recovery/plan.go", `: Source$`, texts(recovery.Sources())},
		{"internal/channel/hub/hub.go", `^Drop`, hub.DropReasons},
		{"internal/server/paths.go", `^Path`, server.Paths},
		{"controller/controller.go", `^Loop`, controller.Loops()},
	} {
		want := constants(t, filepath.Join(root, row.file), regexp.MustCompile(row.name))
		slices.Sort(want)
		got := slices.Sorted(slices.Values(row.list))
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: the list has %q, the code %q", row.file, got, want)
		}
	}
	if ends, states := exec.EndStates(), enumvalues.Values[agboxv1.ExecState](); len(ends) != len(states)-1 { // all but RUNNING
		t.Errorf("ends of execs are %q, states %v", ends, states)
	}
}

func texts[S ~string](list []S) (all []string) {
	for _, s := range list {
		all = append(all, string(s))
	}
	return all
}

// constants returns the values of the string constants of a file whose name, or name and type as "Name: Type", matches.
func constants(t *testing.T, path string, name *regexp.Regexp) (list []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			c := s.(*ast.ValueSpec)
			text := c.Names[0].Name
			if of, ok := c.Type.(*ast.Ident); ok {
				text += ": " + of.Name
			}
			if len(c.Values) != 1 || !name.MatchString(text) {
				continue
			}
			if lit, ok := c.Values[0].(*ast.BasicLit); ok {
				list = append(list, strings.Trim(lit.Value, `"`))
			}
		}
	}
	return list
}

// literals returns all strings in the code below a directory, tests excluded.
func literals(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					list = append(list, text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
