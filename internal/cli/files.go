package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/agbox/agbox/internal/manifest"
)

// document is a manifest and where it came from.
type document struct {
	manifest.Sandbox
	file string
}

// maxManifestBytes bounds what is read of one file; the parser's own limit is lower and has the better message.
const maxManifestBytes = 16 << 20

// readManifests reads files, directories and "-" for standard input. Every name may occur once.
func (a *app) readManifests(paths []string) ([]document, error) {
	var docs []document
	seen := map[string]document{}
	for _, path := range paths {
		files, err := expandPath(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			more, err := a.readFile(file)
			if err != nil {
				return nil, err
			}
			for _, d := range more {
				if first, twice := seen[d.Name]; twice {
					return nil, fmt.Errorf("%s: line %d: sandbox %q is defined twice; first in %s, line %d", d.file, d.Line, d.Name, first.file, first.Line)
				}
				seen[d.Name] = d
			}
			docs = append(docs, more...)
		}
	}
	return docs, nil
}

// expandPath lists the manifests of a directory, sorted; other paths stand for themselves.
func expandPath(path string) ([]string, error) {
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
	for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
		found, err := filepath.Glob(filepath.Join(escapeGlob(path), pattern))
		if err != nil {
			return nil, readError(path, err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no *.yaml, *.yml or *.json file", path)
	}
	slices.Sort(files)
	return files, nil
}

func escapeGlob(path string) string {
	var out []rune
	for _, r := range path {
		if r == '*' || r == '?' || r == '[' || r == '\\' {
			out = append(out, '\\')
		}
		out = append(out, r)
	}
	return string(out)
}

func (a *app) readFile(path string) ([]document, error) {
	in, label := a.In, "standard input"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, readError(path, err)
		}
		defer f.Close()
		in, label = f, path
	}
	text, err := io.ReadAll(io.LimitReader(in, maxManifestBytes))
	if err != nil {
		return nil, readError(label, err)
	}
	found, err := manifest.Parse(text, manifest.Home())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", label, err)
	}
	docs := make([]document, len(found))
	for i, sb := range found {
		docs[i] = document{Sandbox: sb, file: label}
	}
	return docs, nil
}

func readError(path string, err error) error {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return fmt.Errorf("read %s: %w", path, err)
}
