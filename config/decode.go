package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/internal/nearest"
)

// decode sets c from the values of a file, one key at a time, so that a value of the wrong type hides no other mistake. Unknown
// keys stay undecoded in meta.
func (c *Config) decode(meta *toml.MetaData, sections map[string]toml.Primitive) error {
	var errs []error
	root := reflect.ValueOf(c).Elem()
	for section, into := range root.Fields() {
		name := section.Tag.Get("toml")
		values, ok := sections[name]
		if !ok {
			continue
		}
		var raw any
		var keys map[string]toml.Primitive
		_ = meta.PrimitiveDecode(values, &raw) // anything can be read as any
		if _, table := raw.(map[string]any); !table || meta.PrimitiveDecode(values, &keys) != nil {
			errs = append(errs, fmt.Errorf("%s: must be a section: write [%s] on a line of its own, and its keys below", name, name))
			continue
		}
		for field, into := range into.Fields() {
			key := field.Tag.Get("toml")
			if value, ok := keys[key]; ok {
				errs = append(errs, decodeKey(meta, name+"."+key, value, into))
			}
		}
	}
	return errors.Join(errs...)
}

func decodeKey(meta *toml.MetaData, name string, value toml.Primitive, into reflect.Value) error {
	var raw any
	_ = meta.PrimitiveDecode(value, &raw) // anything can be read as any
	switch into.Addr().Interface().(type) {
	case *time.Duration:
		text, _ := raw.(string)
		d, err := quantity.Duration(text)
		if err != nil {
			return fmt.Errorf(`%s: %s is not a duration; write one like "90s", "10m" or "1d"`, name, written(raw))
		}
		into.Set(reflect.ValueOf(d))
		return nil
	case *string, *Level:
		if _, ok := raw.(string); !ok {
			return fmt.Errorf("%s: %s is not a string; put it in quotes", name, written(raw))
		}
	case *bool:
		if _, ok := raw.(bool); !ok {
			return fmt.Errorf("%s: %s is neither true nor false; write one of them, without quotes", name, written(raw))
		}
	case *[]string:
		if meta.PrimitiveDecode(value, into.Addr().Interface()) != nil {
			return fmt.Errorf(`%s: %s is not a list of strings; write one like ["/srv", "/home"]`, name, written(raw))
		}
	case *map[string]string:
		if _, ok := raw.(map[string]any); !ok || meta.PrimitiveDecode(value, into.Addr().Interface()) != nil {
			return fmt.Errorf(`%s: %s is not a table of strings; write one like {base = "debian:13"}`, name, written(raw))
		}
		return nil
	case *int:
		if _, ok := raw.(int64); !ok {
			return fmt.Errorf("%s: %s is not a whole number; write it without quotes and units", name, written(raw))
		}
	}
	if err := meta.PrimitiveDecode(value, into.Addr().Interface()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// written returns a value as it looks in a file.
func written(raw any) string {
	if text, ok := raw.(string); ok {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprint(raw)
}

// unknownKeys returns an error for every key of the file that is neither read nor ignored.
func unknownKeys(meta toml.MetaData) error {
	var errs []error
	known := names()
	for _, key := range topmost(strangers(meta.Keys(), slices.AppendSeq(slices.Clone(known), maps.Keys(ignored)))) {
		text := fmt.Sprintf("%s: unknown key", key)
		if near := meant(key, known); near != "" {
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
		return slices.ContainsFunc(known, func(k string) bool {
			return k == name || strings.HasPrefix(k, name+".") || isTable(k) && strings.HasPrefix(name, k+".")
		})
	})
}

// isTable reports whether the entries of a key have names of their own.
func isTable(name string) bool {
	return slices.ContainsFunc(table, func(k Key) bool { return k.Name == name && k.rule.kind == "table" })
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

// meant returns the known key that key most probably means: the same last part in another section (or in none), or the nearest. Empty
// when none is near.
func meant(key string, known []string) string {
	for _, candidate := range known {
		_, last, _ := strings.Cut(candidate, ".")
		if key == last || strings.HasSuffix(key, "."+last) {
			return candidate
		}
	}
	return nearest.Of(key, known)
}
