// Package faultlist generates the list of all failpoints from the source, so that it includes each
// store commit and engine call that is added later.
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

// Points returns both points of each operation, in the order of their names.
func Points(kind string, ops []string) []string {
	var list []string
	for _, op := range ops {
		list = append(list, kind+"."+op+".before", kind+"."+op+".after") // fault.Before and fault.After
	}
	slices.Sort(list)
	return list
}

// Commits returns the exported methods of *Store, in the Go package in dir, from which a request to the writer may come. A
// method that nothing of the kind can come from is never on the list; see callees for the calls that are followed.
func Commits(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no Go package in %s: %w", dir, fs.ErrNotExist)
	}
	calls := map[string][]string{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				calls[nameOf(fn)] = callees(fn)
			}
		}
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

// writer is the one function through which requests go to the writer.
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

// nameOf is "Type.Method", or "Function".
func nameOf(fn *ast.FuncDecl) string {
	if r := receiver(fn); r != nil {
		return typeName(r.Type) + "." + fn.Name.Name
	}
	return fn.Name.Name
}

func receiver(fn *ast.FuncDecl) *ast.Field {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return nil
	}
	return fn.Recv.List[0]
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

// callees are the functions that fn calls, as far as the names say whose they are: its receiver's methods, those of the
// Store in the field s of something, those of a value that fn made of a type of the package, and functions.
func callees(fn *ast.FuncDecl) []string {
	types := map[string]string{}
	if r := receiver(fn); r != nil && len(r.Names) > 0 {
		types[r.Names[0].Name] = typeName(r.Type)
	}
	for _, p := range fn.Type.Params.List {
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

// made is the type of T{...} and &T{...}.
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
