package manifest

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/agbox/agbox/internal/nearest"
)

const (
	// maxTextBytes is the largest text, in bytes. It has space for a spec of validate.MaxSpecBytes with comments.
	maxTextBytes = 2 << 20
	// maxNesting bounds the parser's stack, and its time, which grows with the square of the depth. Specs need 4 levels.
	maxNesting = 100
	// maxEntries bounds the colons, dashes and commas of a document. The parser's time grows with the square of their number in one mapping
	// or list of any form, to two seconds at this limit, and its stack grows too.
	maxEntries = 20_000
)

// documents returns the bodies of the non-empty documents, at most limit of them.
func documents(text []byte, limit int) ([]ast.Node, error) {
	if len(text) > maxTextBytes {
		return nil, &Error{Text: fmt.Sprintf("the text is larger than %d bytes", maxTextBytes)}
	}
	if !utf8.Valid(text) {
		return nil, &Error{Text: "the text is not UTF-8"}
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // a byte order mark
	var bodies []ast.Node
	for _, part := range split(lexer.Tokenize(string(text))) {
		if len(bodies) == limit {
			break
		}
		if err := checkShape(part); err != nil {
			return nil, err
		}
		file, err := parser.Parse(part, 0, parser.AllowDuplicateMapKey()) // entries reports duplicates with their path
		if err != nil {
			return nil, syntaxError(err)
		}
		for _, doc := range file.Docs {
			if doc.Body != nil && doc.Body.Type() != ast.NullType {
				bodies = append(bodies, doc.Body)
			}
		}
	}
	return bodies, nil
}

// split divides the tokens into documents. The parser alone would drop the document after an empty one.
func split(tokens token.Tokens) []token.Tokens {
	var parts []token.Tokens
	var part token.Tokens
	for _, t := range tokens {
		switch t.Type {
		case token.DocumentHeaderType, token.DocumentEndType:
			parts, part = append(parts, part), nil
		case token.CommentType:
		default:
			part = append(part, t)
		}
	}
	return append(parts, part)
}

// checkShape refuses texts that would occupy the parser for a long time: deeply nested brackets, deeply nested dashes on one line, and very
// many entries.
func checkShape(tokens token.Tokens) error {
	flow, dashes, lastLine, entries := 0, 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != lastLine {
			dashes, lastLine = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
			dashes++
		}
		switch t.Type {
		case token.MappingValueType, token.MappingKeyType, token.SequenceEntryType, token.CollectEntryType:
			entries++
		}
		if entries > maxEntries {
			return &Error{Line: t.Position.Line, Text: fmt.Sprintf("more than %d entries in one document", maxEntries)}
		}
		if flow > maxNesting || dashes > maxNesting {
			return &Error{Line: t.Position.Line, Text: "nested too deeply"}
		}
	}
	return nil
}

// entry is one key and value of a mapping.
type entry struct {
	key   string
	line  int
	value ast.Node
}

// entries returns the entries of a mapping; none for null. If a key occurs twice, it returns the first one. form is an example of such a
// mapping for error messages.
func (d *decoder) entries(node ast.Node, path, form string) ([]entry, error) {
	node, err := d.resolve(node)
	if err != nil || node.Type() == ast.NullType {
		return nil, err
	}
	var pairs []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		return nil, &Error{Line: line(node), Path: path, Text: "must be a mapping" + cmp.Or(suchAs(form), " (key: value)")}
	}
	seen := map[string]int{}
	out := make([]entry, 0, len(pairs))
	for _, p := range pairs {
		e, err := newEntry(p, path)
		first, twice := seen[e.key]
		if err == nil && twice {
			err = &Error{Line: e.line, Path: join(path, e.key), Text: fmt.Sprintf("duplicate key; first on line %d", first)}
		}
		if err == nil {
			seen[e.key] = e.line
			d.record(join(path, e.key), e.line)
			out = append(out, e)
		} else if err := d.keep(err); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func newEntry(p *ast.MappingValueNode, path string) (entry, error) {
	at := line(p.Key)
	if _, merge := p.Key.(*ast.MergeKeyNode); merge {
		return entry{}, &Error{Line: at, Path: path, Text: `merge keys ("<<") are not supported`}
	}
	switch key := p.Key.(type) {
	case *ast.StringNode:
		return entry{key: key.Value, line: at, value: p.Value}, nil
	case ast.ScalarNode: // a number or a boolean, as written
		return entry{key: key.GetToken().Value, line: at, value: p.Value}, nil
	}
	return entry{}, &Error{Line: at, Path: path, Text: "a key must be a plain word or a quoted text"}
}

// resolve follows anchors and aliases. The budget bounds how often aliases can multiply values.
func (d *decoder) resolve(node ast.Node) (ast.Node, error) {
	for range maxNesting {
		if d.budget--; d.budget < 0 {
			return nil, &Error{Line: line(node), Text: "too many values"}
		}
		switch n := node.(type) {
		case *ast.AnchorNode:
			d.anchors[n.Name.GetToken().Value] = n.Value
			node = n.Value
		case *ast.AliasNode:
			target, ok := d.anchors[n.Value.GetToken().Value]
			if !ok {
				return nil, &Error{Line: line(node), Text: "an alias to an anchor that is not defined before it"}
			}
			node = target
		case *ast.TagNode:
			return nil, &Error{Line: line(node), Text: "tags (!...) are not supported"}
		default:
			return node, nil
		}
	}
	return nil, &Error{Line: line(node), Text: "nested too deeply"}
}

func line(node ast.Node) int {
	if node == nil || node.GetToken() == nil || node.GetToken().Position == nil {
		return 0
	}
	return node.GetToken().Position.Line
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// record notes the line of a field.
func (d *decoder) record(path string, line int) {
	if d.lines != nil {
		d.lines[fieldPath(path)] = line
	}
}

// LineOf returns the line of a field of the spec, named as by package validate, or of "name"; for a missing field, that of its nearest
// parent. A label may be in the metadata.
func (d Document) LineOf(field string) int {
	for path := fieldPath(field); path != ""; path = path[:max(strings.LastIndexByte(path, '.'), 0)] {
		if at := cmp.Or(d.lines["spec."+path], d.lines["metadata."+path]); at > 0 {
			return at
		}
	}
	return cmp.Or(d.lines["spec"], d.Line)
}

var bracketed = regexp.MustCompile(`\[([^\]]*)\]?`)

// fieldPath writes indexes and keys in brackets, which validate may quote, as steps: "mounts[0].target" is "mounts.0.target".
func fieldPath(field string) string {
	return bracketed.ReplaceAllStringFunc(field, func(step string) string {
		step = strings.Trim(step, "[]")
		if plain, err := strconv.Unquote(step); err == nil {
			step = plain
		}
		return "." + step
	})
}

// foreign maps keys of other tools to ours.
var foreign = map[string]string{
	"args": "command", "cmd": "command", "cpus": "cpu_limit", "environment": "envs", "mem": "memory_limit", "services": "required_services",
	"workdir": "working_dir",
}

// unknown is the mistake of a key that is not among the known ones. It names the one that is probably meant, or all.
func unknown(e entry, path string, known []string) error {
	meant := foreign[e.key]
	if !slices.Contains(known, meant) {
		meant = nearest.Of(e.key, known)
	}
	text := "unknown key; known here: " + strings.Join(known, ", ")
	if meant != "" {
		text = fmt.Sprintf("unknown key; did you mean %s?", meant)
	}
	return &Error{Line: e.line, Path: join(path, e.key), Text: text}
}
