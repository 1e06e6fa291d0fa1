package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/agext/levenshtein"
)

// unknownKeys returns an error for every key of the file that nothing reads.
func unknownKeys(meta toml.MetaData) error {
	var errs []error
	known := names()
	for _, key := range topmost(strangers(meta.Keys(), known)) {
		text := fmt.Sprintf("%s: unknown key", key)
		if near := nearest(key, known); near != "" {
			text += fmt.Sprintf("; did you mean %s?", near)
		} else {
			text += "; remove it"
		}
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// strangers are the keys of a file that are neither known nor a section of known ones.
func strangers(keys []toml.Key, known []string) []toml.Key {
	return slices.DeleteFunc(slices.Clone(keys), func(key toml.Key) bool {
		name := key.String()
		return slices.ContainsFunc(known, func(k string) bool { return k == name || strings.HasPrefix(k, name+".") })
	})
}

// topmost drops keys inside tables that are unknown themselves.
func topmost(keys []toml.Key) []string {
	var top []string
	for _, key := range keys {
		name := key.String()
		if len(top) == 0 || !strings.HasPrefix(name, top[len(top)-1]+".") {
			top = append(top, name)
		}
	}
	return top
}

// nearest returns the known key that key most probably means: the same last part in another section (or in none), or the
// smallest number of edits, at most a third of its length. Empty when none is near.
func nearest(key string, known []string) string {
	best, bestEdits := "", len(key)/3+1
	for _, candidate := range known {
		_, last, _ := strings.Cut(candidate, ".")
		if key == last || strings.HasSuffix(key, "."+last) {
			return candidate
		}
		if n := levenshtein.Distance(key, candidate, nil); n < bestEdits {
			best, bestEdits = candidate, n
		}
	}
	return best
}
