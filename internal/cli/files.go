package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/manifest"
)

// manifestFiles are the flags -f and -R.
type manifestFiles struct {
	paths     []string
	recursive bool
}

// document is a manifest and its place in a file.
type document struct {
	manifest.Document
	file string
}

// maxManifestBytes bounds the size of a file; the parser's own limit is lower and has a better message.
const maxManifestBytes = 16 << 20

// readManifests reads files, directories and "-" for standard input. Every name may occur once for each kind.
func (a *app) readManifests(ctx context.Context, o manifestFiles) ([]document, error) {
	var docs []document
	seen := map[string]document{}
	for _, path := range o.paths {
		files, err := expandPath(path, o.recursive)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			more, err := a.readFile(ctx, file)
			if err != nil {
				return nil, err
			}
			for _, d := range more {
				key := d.kind() + "/" + d.Name
				if first, twice := seen[key]; twice {
					return nil, fmt.Errorf("%s: line %d: %s %q is defined twice; first in %s, line %d", d.file, d.Line, d.kind(), d.Name, first.file, first.Line)
				}
				seen[key] = d
			}
			docs = append(docs, more...)
		}
	}
	return docs, nil
}

// expandPath returns the manifests of a directory, sorted; it returns other paths unchanged. It does not follow links to directories
// below the path.
func expandPath(path string, recursive bool) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, readError(path, err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path+"/", func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return readError(file, err)
		case e.IsDir() && !recursive && file != path+"/":
			return filepath.SkipDir
		case !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())):
			files = append(files, filepath.Clean(file))
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("directory %s has no *.yaml, *.yml or *.json file%s", path, textIf(!recursive, "; -R reads its subdirectories too"))
	}
	return files, err
}

func (a *app) readFile(ctx context.Context, path string) ([]document, error) {
	label := path
	if path == "-" {
		label = "standard input"
	}
	text, err := a.readText(ctx, path)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, readError(label, err)
	}
	found, err := manifest.Parse(text, a.home())
	if mistakes, ok := errors.AsType[manifest.Errors](err); ok {
		return nil, a.complainOfText(label, mistakes)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", label, err)
	}
	docs := make([]document, len(found))
	for i, one := range found {
		docs[i] = document{Document: one, file: label}
	}
	return docs, nil
}

// readText reads a file, or standard input for "-". It may wait for a writer of a terminal or a FIFO. It returns when ctx ends; a
// blocked read ends with the process.
func (a *app) readText(ctx context.Context, path string) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		in := a.In
		if path != "-" {
			f, err := os.Open(path)
			if err != nil {
				done <- result{nil, err}
				return
			}
			defer f.Close()
			in = f
		}
		text, err := io.ReadAll(io.LimitReader(in, maxManifestBytes))
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func readError(path string, err error) error {
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	return fmt.Errorf("read %s: %w", path, err)
}

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
		a.complain(fmt.Errorf("%s %s (%s, line %d): %w", d.kind(), d.Name, d.file, d.LineOf(one.Field), one))
	}
}
