package config

import (
	"strings"
	"testing"
)

func TestResolvePaths(t *testing.T) {
	tests := map[string]struct {
		env  map[string]string
		uid  int
		want Paths
	}{
		"all variables set": {
			env: map[string]string{"XDG_RUNTIME_DIR": "/r", "XDG_DATA_HOME": "/d", "XDG_CONFIG_HOME": "/c"},
			uid: 1000,
			want: Paths{
				ConfigFile: "/c/agents-sandbox/config.toml", DataDir: "/d/agents-sandbox", Database: "/d/agents-sandbox/ids.db",
				RunDir: "/r/agbox", Socket: "/r/agbox/agboxd.sock", Lock: "/r/agbox/agboxd.lock",
			},
		},
		"root without a runtime directory uses /run": {
			env: map[string]string{"HOME": "/root"},
			want: Paths{
				ConfigFile: "/root/.config/agents-sandbox/config.toml", DataDir: "/root/.local/share/agents-sandbox",
				Database: "/root/.local/share/agents-sandbox/ids.db",
				RunDir:   "/run/agbox", Socket: "/run/agbox/agboxd.sock", Lock: "/run/agbox/agboxd.lock",
			},
		},
		"root without anything is at home in /root": {
			want: Paths{
				ConfigFile: "/root/.config/agents-sandbox/config.toml", DataDir: "/root/.local/share/agents-sandbox",
				Database: "/root/.local/share/agents-sandbox/ids.db",
				RunDir:   "/run/agbox", Socket: "/run/agbox/agboxd.sock", Lock: "/run/agbox/agboxd.lock",
			},
		},
		"others without a runtime directory use their data directory": {
			env: map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "/d"},
			uid: 1000,
			want: Paths{
				ConfigFile: "/home/u/.config/agents-sandbox/config.toml", DataDir: "/d/agents-sandbox",
				Database: "/d/agents-sandbox/ids.db", RunDir: "/d/agents-sandbox/run",
				Socket: "/d/agents-sandbox/run/agboxd.sock", Lock: "/d/agents-sandbox/run/agboxd.lock",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ResolvePaths(func(key string) string { return tt.env[key] }, tt.uid)
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

func TestResolvePathsErrors(t *testing.T) {
	long := "/" + strings.Repeat("x", 200)
	tests := map[string]struct {
		env  map[string]string
		want string
	}{
		"no home":                {map[string]string{}, "neither XDG_DATA_HOME nor HOME is set"},
		"relative home":          {map[string]string{"HOME": "u"}, `HOME is "u"; set it to an absolute path`},
		"relative data":          {map[string]string{"HOME": "/u", "XDG_DATA_HOME": "d"}, `XDG_DATA_HOME is "d"`},
		"relative config":        {map[string]string{"HOME": "/u", "XDG_CONFIG_HOME": "c"}, `XDG_CONFIG_HOME is "c"`},
		"relative run directory": {map[string]string{"HOME": "/u", "XDG_RUNTIME_DIR": "r"}, `XDG_RUNTIME_DIR is "r"`},
		"long socket path":       {map[string]string{"HOME": "/u", "XDG_RUNTIME_DIR": long}, "is longer than 107 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ResolvePaths(func(key string) string { return tt.env[key] }, 1000)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
