// Package config is the daemon's configuration: what can be set, in which file, and where the daemon keeps its things.
//
// A file is TOML with strict keys: one that the daemon does not know is an error, not a silent default. Everything has
// a default, so no file is needed. The table in keys.go says all about each key; docs/configuration.md and
// config/examples/agboxd.toml, which has every key with its default, are written from it.
//
// The package reads files and nothing else; it does not log, and makes no directory.
package config
