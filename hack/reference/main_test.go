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

	"github.com/agbox/agbox/internal/metrics"
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
	word := regexp.MustCompile(`^(SANDBOX|CONTAINER|NETWORK|EXEC|AGENT|AGENTS|PROMPT|DRAIN|DISK|VOLUME|INVALID|FILE|ARCHIVE|WATCH|PORT|USER|STREAM|CHANNEL)_[A-Z_]*[A-Z]$|^DRAINING$`)
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
