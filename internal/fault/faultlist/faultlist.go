// Package faultlist derives the list of all failpoints from the source, so that it includes store commits and engine calls added later.
package faultlist

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
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

// Commits returns the exported methods of *Store, in the package store in dir, that may enqueue a request to the writer. It lists no
// method that cannot.
func Commits(dir string) ([]string, error) {
	s, err := scanned(dir, "")
	if err != nil {
		return nil, err
	}
	reach := map[*types.Func]bool{}
	for fn := range s.calledBy {
		if fn.FullName() == "(*store.Store).enqueue" { // the only function that sends requests to the writer
			s.addCallers(fn, reach)
		}
	}
	var list []string
	for fn := range reach {
		if method, ok := strings.CutPrefix(fn.FullName(), "(*store.Store)."); ok && fn.Exported() {
			list = append(list, method)
		}
	}
	slices.Sort(list)
	return list, nil
}

// addCallers adds a function and all that call it, directly or not.
func (s *scan) addCallers(fn *types.Func, to map[*types.Func]bool) {
	if to[fn] || fn == nil {
		return
	}
	to[fn] = true
	for _, caller := range s.calledBy[fn] {
		s.addCallers(caller, to)
	}
}

// Disk returns the operations of the failpoints of a kind, such as "Disk" for fault.Disk, in the Go package in dir. It also returns the
// calls that change files outside every failpoint of that kind, each as "FILE:LINE: CALL". A function counts as inside a failpoint if each
// call of it is.
func Disk(dir, kind string) (ops, uncovered []string, err error) {
	s, err := scanned(dir, kind)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range s.writes {
		if !s.covered(w.caller, map[*types.Func]bool{}) {
			uncovered = append(uncovered, w.call)
		}
	}
	slices.Sort(s.ops)
	return slices.Compact(s.ops), uncovered, nil
}

// covered reports whether every call of a function comes from within a failpoint.
func (s *scan) covered(fn *types.Func, seen map[*types.Func]bool) bool {
	if fn == inAround || seen[fn] {
		return true
	}
	seen[fn] = true
	callers := s.calledBy[fn]
	return len(callers) > 0 && !slices.ContainsFunc(callers, func(c *types.Func) bool { return !s.covered(c, seen) })
}

// scan holds the calls in a package. The caller of a call is a function of the package, or inAround.
type scan struct {
	kind     string
	set      *token.FileSet
	uses     map[*ast.Ident]types.Object
	ops      []string
	calledBy map[*types.Func][]*types.Func // callers of the functions and methods of the package
	writes   []write
	err      error
}

type write struct {
	call   string
	caller *types.Func
}

// inAround is the caller of calls within fault.Around.
var inAround = types.NewFunc(token.NoPos, nil, "fault.Around", nil)

// scanned parses the Go package in dir, without its tests, and collects its calls. It does not load imports: their names stay unresolved.
func scanned(dir, kind string) (*scan, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	s := &scan{kind: kind, set: token.NewFileSet(), uses: map[*ast.Ident]types.Object{}, calledBy: map[*types.Func][]*types.Func{}}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(s.set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no Go package in %s: %w", dir, fs.ErrNotExist)
	}
	conf, defs := types.Config{Error: func(error) {}}, map[*ast.Ident]types.Object{}
	_, _ = conf.Check(filepath.Base(dir), s.set, files, &types.Info{Defs: defs, Uses: s.uses}) // it reports the imports
	for _, file := range files {
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				caller, _ := defs[fn.Name].(*types.Func)
				s.calls(fn.Body, caller)
			}
		}
	}
	return s, s.err
}

// changes lists functions that change a file or a file system.
var changes = []string{
	"os.Create", "os.CreateTemp", "os.OpenFile", "os.WriteFile", "os.Remove", "os.RemoveAll", "os.Rename", "os.Link", "os.Symlink", "os.Truncate",
	"os.Mkdir", "os.MkdirAll", "unix.Fallocate", "unix.Ftruncate", "unix.Unlink", "unix.Open", "unix.Openat",
}

var changingMethods = []string{"Write", "WriteAt", "WriteString", "ReadFrom", "Truncate", "Sync"}

func (s *scan) calls(body ast.Node, caller *types.Func) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		callee, of, name := s.called(call)
		switch {
		case of == "fault" && name == "Around" && len(call.Args) > 2 && isField(call.Args[0], s.kind):
			op, err := literal(call.Args[1])
			if err != nil && s.err == nil {
				s.err = fmt.Errorf("%s: the operation of a failpoint is not a literal: %w", s.set.Position(call.Pos()), err)
			}
			s.ops = append(s.ops, op)
			s.calls(call.Args[2], inAround)
			return false
		case slices.Contains(changes, of+"."+name), slices.Contains(changingMethods, name):
			s.writes = append(s.writes, write{fmt.Sprintf("%s: %s.%s", s.set.Position(call.Pos()), of, name), caller})
		case callee != nil:
			s.calledBy[callee.Origin()] = append(s.calledBy[callee.Origin()], caller)
		}
		return true
	})
}

// called returns the called function if it is one of the package, the identifier before its name, and its name.
func (s *scan) called(call *ast.CallExpr) (fn *types.Func, of, name string) {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		fn, _ = s.uses[f].(*types.Func)
		return fn, "", f.Name
	case *ast.SelectorExpr:
		if id, ok := f.X.(*ast.Ident); ok {
			of = id.Name
		}
		fn, _ = s.uses[f.Sel].(*types.Func)
		return fn, of, f.Sel.Name
	}
	return nil, "", ""
}

func isField(e ast.Expr, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == name
}

func literal(e ast.Expr) (string, error) {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return "", fmt.Errorf("%T", e)
	}
	return strconv.Unquote(lit.Value)
}
