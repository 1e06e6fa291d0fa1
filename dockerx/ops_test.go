package dockerx

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// gate are the functions through which calls reach the engine. Each may be used only in the functions that are listed with it; "" is any.
var gate = map[string][]string{
	"do": nil, "ask": nil, "doWithin": nil, // with an operation of its own, see uses.operation
	"withClient": {"doWithin", "subscribe"}, // inside fault.Around
	"negotiate":  {"withClient"},
	"sdk":        {"dialer", "negotiate"},
	"probe":      {"dialer", "negotiate"},
	"current":    {"withClient", "negotiate", "Info", "RoundTrip"}, // the last two use the version
	"http":       {"Close", "dialer", "sdk"},
}

// uses are what a source file does with the engine's client.
type uses struct {
	ops    map[string][]string // functions by the operation that they pass to a wrapper
	broken []string
}

// TestEveryCallOfTheEngineHasAnOperation: the failpoints and metrics of the engine are those of Ops. Each operation has one place, and no
// client is reached around the wrappers, so a new call has an operation of its own or fails here.
func TestEveryCallOfTheEngineHasAnOperation(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	u, set := uses{ops: map[string][]string{}}, token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		u.file(file)
	}
	for _, op := range u.broken {
		t.Error(op)
	}
	var consts []string
	for op, fns := range u.ops {
		consts = append(consts, op)
		if len(fns) != 1 {
			t.Errorf("%s is the operation of %v: each call needs one of its own", op, fns)
		}
	}
	if len(consts) != len(Ops()) {
		t.Errorf("%d operations have a call, of %d: %v", len(consts), len(Ops()), consts)
	}
}

func TestACallAroundTheWrappersIsFound(t *testing.T) {
	for name, row := range map[string]struct{ body, want string }{
		"an operation":             {`e.do(ctx, OpInfo, "info", f)`, ""},
		"the client itself":        {`e.withClient(ctx, f)`, "M uses withClient"},
		"the probe":                {`e.probe.Ping(ctx)`, "M uses probe"},
		"the last client":          {`e.current.Load().Info(ctx)`, "M uses current"},
		"a client of its own":      {`client.NewClientWithOpts()`, "M makes a client"},
		"raw HTTP":                 {`e.http.Get("http://docker/info")`, "M uses http"},
		"an operation in a string": {`e.do(ctx, "info", "info", f)`, "M passes no operation"},
		"a wrapper as a value":     {`g := e.do; g(ctx, OpInfo, "info", f)`, "M uses do as a value"},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc (e *Engine) M() { "+row.body+" }", parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		u := uses{ops: map[string][]string{}}
		u.file(file)
		if got := strings.Join(u.broken, "; "); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

func (u *uses) file(file *ast.File) {
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			u.function(fn)
		}
	}
}

func (u *uses) function(fn *ast.FuncDecl) {
	name, called := fn.Name.Name, map[ast.Node]bool{}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			called[n.Fun] = true
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Around" && isNamed(s.X, "fault") {
				u.operation(name, n.Args, 1)
			}
			if to := wrapperOf(n.Fun); to != "" {
				u.operation(name, n.Args, map[string]int{"do": 1, "doWithin": 1, "ask": 2}[to])
			}
		case *ast.SelectorExpr:
			u.selector(name, n, called[n])
		}
		return true
	})
}

// operation notes the operation in a call's arguments. The wrappers pass on the one that they are given.
func (u *uses) operation(fn string, args []ast.Expr, at int) {
	if slices.Contains([]string{"do", "ask", "doWithin"}, fn) {
		return
	}
	if id, ok := args[at].(*ast.Ident); ok && strings.HasPrefix(id.Name, "Op") {
		u.ops[id.Name] = append(u.ops[id.Name], fn)
		return
	}
	u.broken = append(u.broken, fn+" passes no operation")
}

func (u *uses) selector(fn string, s *ast.SelectorExpr, called bool) {
	if isNamed(s.X, "client") && strings.HasPrefix(s.Sel.Name, "NewClient") && fn != "sdk" {
		u.broken = append(u.broken, fn+" makes a client")
	}
	in, ok := gate[s.Sel.Name]
	switch {
	case !ok || !isNamed(s.X, "e") && !ofEngine(s.X):
	case in == nil && !called:
		u.broken = append(u.broken, fn+" uses "+s.Sel.Name+" as a value")
	case in != nil && !slices.Contains(in, fn):
		u.broken = append(u.broken, fn+" uses "+s.Sel.Name)
	}
}

// wrapperOf returns the wrapper that an expression calls.
func wrapperOf(fun ast.Expr) string {
	switch f := fun.(type) {
	case *ast.SelectorExpr:
		if isNamed(f.X, "e") && (f.Sel.Name == "do" || f.Sel.Name == "doWithin") {
			return f.Sel.Name
		}
	case *ast.IndexExpr: // ask[T]
		return wrapperOf(f.X)
	case *ast.Ident:
		if f.Name == "ask" {
			return "ask"
		}
	}
	return ""
}

func isNamed(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

// ofEngine reports whether an expression is a field "engine" of another value.
func ofEngine(x ast.Expr) bool {
	s, ok := x.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "engine"
}
