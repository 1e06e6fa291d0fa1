package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/manifest"
)

// complainOfText prints all mistakes of a text except the last, one per line, and returns the last.
func (a *app) complainOfText(label string, mistakes manifest.Errors) error {
	last := len(mistakes) - 1
	for _, one := range mistakes[:last] {
		a.complain(fmt.Errorf("%s: %w", label, one))
	}
	return fmt.Errorf("%s: %w", label, mistakes[last])
}

// rules returns the rules that a document breaks, except those that only the daemon can check.
func (d document) rules() validate.Errors {
	if d.Agent != nil {
		return slices.Concat(validate.Name(d.Name), validate.Agent(d.Agent))
	}
	return slices.Concat(validate.Name(d.Name), validate.NameOfService(d.Name, d.Spec), validate.Create(d.Spec))
}

// complainOf prints the mistakes of a document: one line per broken rule, with the line number of the field.
func (a *app) complainOf(d document, err error) {
	var refused *client.Error
	var broken validate.Errors
	switch {
	case errors.As(err, &broken):
	case errors.As(err, &refused) && client.IsInvalidArgument(err):
		for _, f := range refused.Fields {
			broken = append(broken, validate.Error{Field: f.Field, Message: f.Message})
		}
		if all := d.rules(); len(all) > len(broken) {
			broken = all // an answer of the daemon has only a few
		}
	}
	if len(broken) == 0 {
		a.complain(fmt.Errorf("%s %s (%s, line %d): %w", d.kind(), d.Name, d.file, d.Line, err))
	}
	for _, one := range broken {
		a.complain(fmt.Errorf("%s %s (%s, line %d): %w", d.kind(), d.Name, d.file, d.lineOf(one.Field), one))
	}
}

// lineOf returns the line of a field; for a missing field, that of its nearest parent.
func (d document) lineOf(field string) int {
	lines := strings.SplitAfter(string(d.text), "\n")
	if d.Line < 1 || d.Line > len(lines) {
		return d.Line
	}
	end := len(lines)
	if d.end > d.Line && d.end <= len(lines) {
		end = d.end - 1
	}
	file, err := parser.ParseBytes([]byte(strings.Join(lines[d.Line-1:end], "")), 0, parser.AllowDuplicateMapKey())
	if err != nil || len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return d.Line
	}
	line, depth := 1, 0
	for _, path := range fieldPaths(field) {
		if at, steps := deepest(file.Docs[0].Body, path); steps > depth {
			line, depth = at, steps
		}
	}
	return d.Line + line - 1
}

// fieldPaths returns the keys from a document to a field, such as spec, mounts, 1, target. Labels have two paths.
func fieldPaths(field string) [][]string {
	if field == "name" {
		return [][]string{{"metadata", "name"}}
	}
	var path []string
	for field != "" {
		switch end := strings.IndexAny(field, ".["); {
		case field[0] == '[' && strings.Contains(field, "]"):
			end = strings.Index(field, "]")
			path, field = append(path, unquoted(field[1:end])), field[end+1:]
		case end == 0:
			field = field[1:]
		case end < 0:
			path, field = append(path, field), ""
		default:
			path, field = append(path, field[:end]), field[end:]
		}
	}
	all := [][]string{append([]string{"spec"}, path...)}
	if len(path) > 0 && path[0] == "labels" {
		all = append(all, append([]string{"metadata"}, path...))
	}
	return all
}

// unquoted removes the quotes that validate puts around a key.
func unquoted(key string) string {
	if plain, err := strconv.Unquote(key); err == nil {
		return plain
	}
	return key
}

// deepest follows path as far as it exists, and returns the line and the number of steps.
func deepest(node ast.Node, path []string) (line, steps int) {
	for i, step := range path {
		if anchor, ok := node.(*ast.AnchorNode); ok {
			node = anchor.Value
		}
		var at ast.Node
		at, node = child(node, step)
		if node == nil {
			return line, i
		}
		line = at.GetToken().Position.Line
	}
	return line, len(path)
}

// child returns the value of a key or an index, and the node with its first line.
func child(node ast.Node, step string) (at, value ast.Node) {
	var entries []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Values) {
			return n.Values[i], n.Values[i]
		}
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	}
	for _, e := range entries {
		if e.Key.GetToken().Value == step {
			return e.Key, e.Value
		}
	}
	return nil, nil
}
