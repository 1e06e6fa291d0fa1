// Package faultlist derives the list of all failpoints from the source, so that it includes store commits and engine calls added later.
package faultlist

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Points returns both points of each operation, sorted by name.
func Points(kind string, ops []string) []string {
	var list []string
	for _, op := range ops {
		list = append(list, kind+"."+op+".before", kind+"."+op+".after") // fault.Before and fault.After
	}
	slices.Sort(list)
	return list
}

// Commits returns the exported methods of *Store, in the Go package in dir, that may enqueue a request to the writer. It lists no method
// that cannot; callees describes which calls are followed.
func Commits(dir string) ([]string, error) {
	funcs, err := functions(token.NewFileSet(), dir)
	if err != nil {
		return nil, err
	}
	calls := map[string][]string{}
	for _, fn := range funcs {
		calls[nameOf(fn)] = callees(fn)
	}
	var list []string
	for name := range calls {
		if method, ok := strings.CutPrefix(name, "Store."); ok && ast.IsExported(method) && reaches(calls, name, map[string]bool{}) {
			list = append(list, method)
		}
	}
	slices.Sort(list)
	return list, nil
}

// functions parses the functions and methods of the Go package in dir, without its tests.
func functions(set *token.FileSet, dir string) (list []*ast.FuncDecl, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no Go package in %s: %w", dir, fs.ErrNotExist)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				list = append(list, fn)
			}
		}
	}
	return list, nil
}

// writer is the only function that sends requests to the writer.
const writer = "Store.enqueue"

func reaches(calls map[string][]string, name string, seen map[string]bool) bool {
	if name == writer {
		return true
	}
	if seen[name] {
		return false
	}
	seen[name] = true
	return slices.ContainsFunc(calls[name], func(callee string) bool { return reaches(calls, callee, seen) })
}

// nameOf returns "Type.Method", or "Function".
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv != nil {
		return typeName(fn.Recv.List[0].Type) + "." + fn.Name.Name
	}
	return fn.Name.Name
}

func typeName(t ast.Expr) string {
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// callees returns the functions that fn calls, if the names identify them: methods of its receiver and parameters, methods of the Store in
// a field called s, methods of values that fn creates of a type of the package, and functions.
func callees(fn *ast.FuncDecl) []string {
	types := map[string]string{}
	named := fn.Type.Params.List
	if fn.Recv != nil {
		named = slices.Concat(fn.Recv.List, named)
	}
	for _, p := range named {
		for _, n := range p.Names {
			types[n.Name] = typeName(p.Type)
		}
	}
	var list []string
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, right := range n.Rhs {
				if id, ok := n.Lhs[i].(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) {
					types[id.Name] = made(right)
				}
			}
		case *ast.CallExpr:
			list = append(list, callee(n.Fun, types))
		}
		return true
	})
	return list
}

// made returns the type of T{...} and &T{...}.
func made(e ast.Expr) string {
	if u, ok := e.(*ast.UnaryExpr); ok {
		e = u.X
	}
	if lit, ok := e.(*ast.CompositeLit); ok && lit.Type != nil {
		return typeName(lit.Type)
	}
	return ""
}

func callee(fun ast.Expr, types map[string]string) string {
	switch f := fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		switch x := f.X.(type) {
		case *ast.Ident:
			return types[x.Name] + "." + f.Sel.Name
		case *ast.SelectorExpr:
			if x.Sel.Name == "s" {
				return "Store." + f.Sel.Name
			}
		}
	}
	return ""
}
