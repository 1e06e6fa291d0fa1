package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// constant is one string constant of a type.
type constant struct{ Value, Comment string }

// constantsOf returns the constants of a type in the order of the file.
func constantsOf(path, typeName string) ([]constant, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var list []constant
	for _, d := range file.Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, s := range gen.Specs {
			v, ok := s.(*ast.ValueSpec)
			if !ok {
				continue
			}
			if name, ok := v.Type.(*ast.Ident); !ok || name.Name != typeName {
				continue
			}
			value, err := stringOf(v)
			if err != nil {
				return nil, err
			}
			list = append(list, constant{value, strings.TrimSpace(v.Comment.Text())})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no constant of type %s", path, typeName)
	}
	return list, nil
}

func stringOf(v *ast.ValueSpec) (string, error) {
	if len(v.Values) != 1 {
		return "", fmt.Errorf("%s has %d values", v.Names[0].Name, len(v.Values))
	}
	lit, ok := v.Values[0].(*ast.BasicLit)
	if !ok {
		return "", fmt.Errorf("%s is not a string", v.Names[0].Name)
	}
	return strconv.Unquote(lit.Value)
}
