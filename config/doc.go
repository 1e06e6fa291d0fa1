// Package config is the daemon's configuration: what can be set, in which file, and where the daemon keeps its things.
//
// A file is TOML with strict keys: one that the daemon does not know is an error, not a silent default. Everything has
// a default, so no file is needed. config/examples/agboxd.toml names every key with its default.
//
// The package reads files and nothing else; it does not log, and makes no directory.
package config
