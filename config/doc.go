// Package config has the daemon's configuration and the paths of its files.
//
// A file is TOML with strict keys: an unknown key is an error. Every key has a default, so a file is optional. The table in
// keys.go describes each key; docs/configuration.md and config/examples/agboxd.toml are generated from it.
//
// The package reads files; it does not log or create directories.
package config
