package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/BurntSushi/toml"
)

// Keys returns every key that a file may set, as section.key, in the order of the types.
func Keys() []string {
	var keys []string
	sections := reflect.TypeFor[Config]()
	for i := range sections.NumField() {
		section := sections.Field(i)
		for j := range section.Type.NumField() {
			keys = append(keys, section.Tag.Get("toml")+"."+section.Type.Field(j).Tag.Get("toml"))
		}
	}
	return keys
}

// unknownKeys returns an error for every key of the file that nothing reads.
func unknownKeys(meta toml.MetaData) error {
	var errs []error
	known := Keys()
	for _, key := range topmost(meta.Undecoded()) {
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

// nearest returns the known key that key most probably means: the same last part in another section (or in none), or
// the smallest number of edits, at most a third of its length. Empty when none is near.
func nearest(key string, known []string) string {
	best, bestEdits := "", len(key)/3+1
	for _, candidate := range known {
		_, last, _ := strings.Cut(candidate, ".")
		if key == last || strings.HasSuffix(key, "."+last) {
			return candidate
		}
		if n := edits(key, candidate); n < bestEdits {
			best, bestEdits = candidate, n
		}
	}
	return best
}

// edits is the Levenshtein distance: how many single bytes to insert, delete or replace.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
