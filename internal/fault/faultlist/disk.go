package faultlist

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
)

// Disk returns the operations of the failpoints of a kind, such as "Disk" for fault.Disk, in the Go package in dir. It also returns the
// calls that change files outside every failpoint of that kind, each as "FILE:LINE: CALL". A function counts as inside a failpoint if each
// call of it is.
func Disk(dir, kind string) (ops, uncovered []string, err error) {
	s := scan{kind: kind, set: token.NewFileSet(), calledBy: map[string][]string{}}
	funcs, err := functions(s.set, dir)
	if err != nil {
		return nil, nil, err
	}
	for _, fn := range funcs {
		s.calls(fn.Body, fn.Name.Name)
	}
	if s.err != nil {
		return nil, nil, s.err
	}
	for _, w := range s.writes {
		if !s.covered(w.caller, map[string]bool{}) {
			uncovered = append(uncovered, w.call)
		}
	}
	slices.Sort(s.ops)
	return slices.Compact(s.ops), uncovered, nil
}

// scan is the result of parsing a package. The caller of a call is a function of the package, or inAround.
type scan struct {
	kind     string
	set      *token.FileSet
	ops      []string
	calledBy map[string][]string // callers by the name of a function or method; names are unique enough within one package
	writes   []write
	err      error
}

type write struct{ call, caller string }

// inAround is the caller of calls within fault.Around.
const inAround = "fault.Around"

// changes lists functions that change a file or a file system.
var changes = []string{
	"os.Create", "os.CreateTemp", "os.OpenFile", "os.WriteFile", "os.Remove", "os.RemoveAll", "os.Rename", "os.Link", "os.Symlink", "os.Truncate",
	"os.Mkdir", "os.MkdirAll", "unix.Fallocate", "unix.Ftruncate", "unix.Unlink", "unix.Open", "unix.Openat",
}

var changingMethods = []string{"Write", "WriteAt", "WriteString", "ReadFrom", "Truncate", "Sync"}

func (s *scan) calls(body ast.Node, caller string) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name, of := called(call)
		switch {
		case of == "fault" && (name == "Around" || name == "Point") && len(call.Args) > 1 && isField(call.Args[0], s.kind):
			op, err := literal(call.Args[1])
			if err != nil && s.err == nil {
				s.err = fmt.Errorf("%s: the operation of a failpoint is not a literal: %w", s.set.Position(call.Pos()), err)
			}
			s.ops = append(s.ops, op)
			if name == "Around" && len(call.Args) > 2 {
				s.calls(call.Args[2], inAround)
				return false
			}
		case slices.Contains(changes, of+"."+name), slices.Contains(changingMethods, name):
			s.writes = append(s.writes, write{fmt.Sprintf("%s: %s.%s", s.set.Position(call.Pos()), of, name), caller})
		default:
			s.calledBy[name] = append(s.calledBy[name], caller)
		}
		return true
	})
}

// covered reports whether every call of a function comes from within a failpoint.
func (s *scan) covered(name string, seen map[string]bool) bool {
	if name == inAround || seen[name] {
		return true
	}
	seen[name] = true
	callers := s.calledBy[name]
	return len(callers) > 0 && !slices.ContainsFunc(callers, func(c string) bool { return !s.covered(c, seen) })
}

// called returns the name of the called function, and the identifier before it; "" if there is none.
func called(call *ast.CallExpr) (name, of string) {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name, ""
	case *ast.SelectorExpr:
		if id, ok := f.X.(*ast.Ident); ok {
			of = id.Name
		}
		return f.Sel.Name, of
	}
	return "", ""
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
