package config

import (
	"errors"
	"flag"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDefaultIsValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Fatal(err)
	}
}

var update = flag.Bool("update", false, "write the files that are made from the table of keys")

func TestGeneratedConfigurationFilesAreUpToDate(t *testing.T) {
	for file, table := range map[string]string{
		"examples/agboxd.toml": example(), "../docs/configuration.md": reference(),
	} {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		firstLine, _, _ := strings.Cut(table, "\n") // what is above it is written by hand
		head, _, found := strings.Cut(string(got), "\n"+firstLine+"\n")
		if want := head + "\n" + table; *update && found {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if string(got) != want {
			t.Errorf("%s is not as the table says; run: go test ./config -update", file)
		}
	}
}

func TestExampleHasEveryKeyWithItsDefault(t *testing.T) {
	got, set, err := parse("example", []byte(example()))
	if err != nil {
		t.Fatal(err)
	}
	if want := Default(); !reflect.DeepEqual(got, want) {
		t.Errorf("the example is not the default:\n got %+v\nwant %+v", got, want)
	}
	for _, k := range table {
		if !set[k.Name] {
			t.Errorf("the example lacks %s", k.Name)
		}
	}
}

func TestTheTableHasEveryFieldInOrder(t *testing.T) {
	var tags []string
	sections := reflect.TypeFor[Config]()
	for i := range sections.NumField() {
		section := sections.Field(i)
		for j := range section.Type.NumField() {
			tags = append(tags, section.Tag.Get("toml")+"."+section.Type.Field(j).Tag.Get("toml"))
		}
	}
	if !slices.Equal(names(), tags) {
		t.Errorf("the table and the types differ:\n%q\n%q", names(), tags)
	}
	for _, k := range table {
		if k.Meaning == "" || k.rule.text == "" || k.rule.kind == "" {
			t.Errorf("%s is not described: %+v", k.Name, k)
		}
	}
}

func TestReloadAppliesReloadableKeys(t *testing.T) {
	old, next := Default(), Default()
	next.Runtime.IdleTTL, next.Log.Level = time.Hour, "debug"
	next.Runtime.Workers, next.HTTP.Listen = 3, "off"
	merged, changed, restart := old.Reload(next)
	want := Default()
	want.Runtime.IdleTTL, want.Log.Level = time.Hour, "debug"
	if !reflect.DeepEqual(merged, want) {
		t.Errorf("merged %+v", merged)
	}
	if !slices.Equal(changed, []string{"runtime.idle_ttl", "log.level"}) {
		t.Errorf("changed %q", changed)
	}
	if !slices.Equal(restart, []string{"http.listen", "runtime.workers"}) {
		t.Errorf("need a restart: %q", restart)
	}
	if same, changed, restart := merged.Reload(merged); !reflect.DeepEqual(same, merged) || changed != nil || restart != nil {
		t.Errorf("the same again: %q %q", changed, restart)
	}
}

func TestAWrittenConfigurationIsReadUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Default()
		want.Runtime.IdleTTL = time.Duration(rapid.Int64Range(int64(time.Second), 1<<62).Draw(t, "idle"))
		want.Runtime.StopGrace = time.Duration(rapid.Int64Range(0, 3600).Draw(t, "grace")) * time.Second
		want.Runtime.EventHistoryLimit = rapid.IntRange(100, 1<<40).Draw(t, "history")
		want.Artifacts.ExecLogMaxBytes = Size(rapid.Int64Range(0, 1<<50).Draw(t, "log"))
		want.Mounts.AllowSystem = rapid.Bool().Draw(t, "system")
		want.Mounts.Allow = rapid.SliceOf(rapid.StringMatching(`/[a-zäöü"\\#$]+`)).Draw(t, "allow")
		want.Docker.CredentialsDir = "/" + rapid.StringMatching(`[a-zäöü "\\#$]+`).Draw(t, "dir")
		var b strings.Builder
		if err := Write(&b, want, func(k Key) string { return k.Name }); err != nil {
			t.Fatal(err)
		}
		if got, _, err := parse("f", []byte(b.String())); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v\n%s", err, b.String())
		}
	})
}

func TestOriginOfEachValue(t *testing.T) {
	p := Paths{ConfigFile: filepath.Join(t.TempDir(), "config.toml"), DataDir: "/d"}
	if _, o, err := Load("", p); err != nil || o.File != "" || o.Of("log.level") != "default" {
		t.Errorf("without a file: %+v, %v", o, err)
	}
	if err := os.WriteFile(p.ConfigFile, []byte("[log]\nlevel = \"info\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, o, err := Load("", p)
	if err != nil || o.Of("log.level") != p.ConfigFile || o.Of("log.format") != "default" {
		t.Errorf("with a file: %+v, %v", o, err)
	}
}

func TestParseKeepsDefaultsOfWhatIsNotSet(t *testing.T) {
	got, _, err := parse("f", []byte("[runtime]\nidle_ttl = \"0\"\nworkers = 3\n[artifacts]\nexec_log_max_bytes = 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Runtime.IdleTTL, want.Runtime.Workers, want.Artifacts.ExecLogMaxBytes = 0, 3, 0
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestParseErrors(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string
	}{
		"a misspelled key names the right one": {
			"[runtime]\nidle_tll = \"5m\"", []string{"file.toml: runtime.idle_tll: unknown key; did you mean runtime.idle_ttl?"},
		},
		"a key in the wrong section names the right one": {
			"[docker]\nidle_ttl = \"5m\"", []string{"docker.idle_ttl: unknown key; did you mean runtime.idle_ttl?"},
		},
		"a key without a section names the right one": {
			"idle_ttl = \"5m\"", []string{"idle_ttl: unknown key; did you mean runtime.idle_ttl?"},
		},
		"a key that resembles nothing is to be removed": {
			"[zebra]\nstripes = 5", []string{"zebra: unknown key; remove it"},
		},
		"keys are case-sensitive in their suggestion": {
			"[runtime]\nwrokers = 5", []string{"runtime.wrokers: unknown key; did you mean runtime.workers?"},
		},
		"a key that was renamed names its new name": {
			"[artifacts]\nexec_log_max = 5", []string{"artifacts.exec_log_max: unknown key; did you mean artifacts.exec_log_max_bytes?"},
		},
		"everything wrong is said at once": {
			"[runtime]\nworkers = 0\nengine_death = \"panic\"\nfoo_bar_baz_qux = 1\n[docker]\nsubnet_pool = \"10.213.0.1/16\"",
			[]string{
				"runtime.foo_bar_baz_qux: unknown key",
				"runtime.workers: 0 is out of range; write a number from 1 to 64",
				`runtime.engine_death: "panic" is unknown; write one of restart, fail`,
				`docker.subnet_pool: "10.213.0.1/16" is not the start of its block; write "10.213.0.0/16"`,
			},
		},
		"a bad duration names its key": {"[runtime]\nidle_ttl = \"soon\"", []string{"file.toml", "runtime.idle_ttl"}},
		"a bad size names its key":     {"[artifacts]\nexec_log_max_bytes = \"big\"", []string{"exec_log_max_bytes", "GiB"}},
		"a bad block names its key":    {"[docker]\nsubnet_pool = \"lots\"", []string{"docker.subnet_pool"}},
		"a wrong type names its key":   {"[http]\nlisten = 5", []string{"listen"}},
		"broken TOML names the line":   {"[runtime\n", []string{"file.toml", "line"}},
		"a key set twice is refused":   {"[log]\nlevel=\"info\"\nlevel=\"warn\"", []string{"level"}},
		"a number is no duration":      {"[runtime]\nidle_ttl = 30", []string{`runtime.idle_ttl: 30 is not a duration; write one like "90s"`}},
		"weeks are no duration":        {"[runtime]\nidle_ttl = \"1w\"", []string{`runtime.idle_ttl: "1w" is not a duration`}},
		"a section is no value":        {"runtime = 3", []string{"runtime: must be a section"}},
		"a wrong type hides no mistake": {"[runtime]\nworkers = \"8\"\nstop_grace = 5\nidle_ttl = \"1ms\"\n[log]\nlevel = 3\nform = \"x\"", []string{
			`runtime.workers: "8" is not a whole number`, "runtime.stop_grace: 5", `runtime.idle_ttl: "1ms" is out of range`, "log.level: 3 is not a string", "log.form: unknown key",
		}},
		"a negative duration is refused":   {"[runtime]\nstop_grace = \"-1s\"", []string{"runtime.stop_grace"}},
		"a word is neither true nor false": {"[mounts]\nallow_system = \"yes\"", []string{`mounts.allow_system: "yes" is neither true nor false`}},
		"one path is no list":              {"[mounts]\nallow = \"/srv\"", []string{`mounts.allow: "/srv" is not a list of strings; write one like ["/srv", "/home"]`}},
		"one image is no table":            {"[e2b]\ntemplates = \"debian\"", []string{`e2b.templates: "debian" is not a table of strings; write one like {base = "debian:13"}`}},
		"a bad path in a list":             {"[mounts]\nallow = [\"/srv/\"]", []string{`mounts.allow: "/srv/" is not an absolute path`, `write "/srv"`}},
		"a zero resync interval is no off": {"[runtime]\nresync_interval = \"0\"", []string{`write a duration from "1s" to "1h0m0s"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := parse("file.toml", []byte(tt.file))
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestValidateEachKey(t *testing.T) {
	tests := []struct {
		key   string
		spoil func(*Config)
	}{
		{"socket.group", func(c *Config) { c.Socket.Group = "no such group" }},
		{"socket.mode", func(c *Config) { c.Socket.Mode = "0666" }},
		{"socket.mode", func(c *Config) { c.Socket = Socket{Group: "0", Mode: "0600"} }},
		{"tcp.listen", func(c *Config) { c.TCP = TCP{Listen: "9479", Cert: "/c", Key: "/k", ClientCA: "/a"} }},
		{"tcp.listen", func(c *Config) { c.TCP = TCP{Listen: "off", Cert: "/c", Key: "/k", ClientCA: "/a"} }},
		{"tcp.cert", func(c *Config) { c.TCP.Cert = "cert.pem" }},
		{"tcp.cert", func(c *Config) { c.TCP = TCP{Listen: ":9479", Key: "/k", ClientCA: "/a"} }},
		{"tcp.key", func(c *Config) { c.TCP.Key = "../key.pem" }},
		{"tcp.key", func(c *Config) { c.TCP = TCP{Listen: ":9479", Cert: "/c", ClientCA: "/a"} }},
		{"tcp.client_ca", func(c *Config) { c.TCP.ClientCA = "ca.pem" }},
		{"tcp.client_ca", func(c *Config) { c.TCP = TCP{Listen: ":9479", Cert: "/c", Key: "/k"} }},
		{"e2b.listen", func(c *Config) { c.E2B.Listen = "0.0.0.0:3000" }},
		{"e2b.listen", func(c *Config) { c.E2B.Listen = "3000" }},
		{"e2b.listen", func(c *Config) { c.E2B.Listen = "127.0.0.1:http" }},
		{"e2b.listen", func(c *Config) { c.E2B.Listen = "off" }},
		{"e2b.cert", func(c *Config) { c.E2B.Cert, c.E2B.Key = "cert.pem", "/k" }},
		{"e2b.cert", func(c *Config) { c.E2B.Key = "/k" }},
		{"e2b.key", func(c *Config) { c.E2B.Cert, c.E2B.Key = "/c", "key.pem" }},
		{"e2b.key", func(c *Config) { c.E2B.Cert = "/c" }},
		{"e2b.domain", func(c *Config) { c.E2B.Domain = "https://x" }},
		{"e2b.domain", func(c *Config) { c.E2B.Domain = "X.example.com" }},
		{"e2b.templates", func(c *Config) { c.E2B.Templates = map[string]string{"base": ""} }},
		{"tcp.clients", func(c *Config) { c.TCP.Clients = []string{"alice", ""} }},
		{"http.listen", func(c *Config) { c.HTTP.Listen = "nine" }},
		{"http.listen", func(c *Config) { c.HTTP.Listen = "127.0.0.1:99999" }},
		{"docker.host", func(c *Config) { c.Docker.Host = "docker.sock" }},
		{"docker.host", func(c *Config) { c.Docker.Host = "unix://docker.sock" }},
		{"docker.host", func(c *Config) { c.Docker.Host = "tcp://host" }},
		{"docker.subnet_pool", func(c *Config) { c.Docker.SubnetPool = netip.MustParsePrefix("fd00::/64") }},
		{"docker.subnet_pool", func(c *Config) { c.Docker.SubnetPool = netip.MustParsePrefix("10.0.0.0/28") }},
		{"docker.subnet_pool", func(c *Config) { c.Docker.SubnetPool = netip.Prefix{} }},
		{"docker.pull_timeout", func(c *Config) { c.Docker.PullTimeout = 0 }},
		{"runtime.idle_ttl", func(c *Config) { c.Runtime.IdleTTL = -time.Second }},
		{"docker.credentials_dir", func(c *Config) { c.Docker.CredentialsDir = "~/.docker" }},
		{"runtime.timeout", func(c *Config) { c.Runtime.Timeout = time.Second - 1 }},
		{"runtime.timeout", func(c *Config) { c.Runtime.Timeout = longestTimeout + 1 }},
		{"pause.freeze_duration", func(c *Config) { c.Pause.FreezeDuration = -time.Hour }},
		{"pause.max_frozen", func(c *Config) { c.Pause.MaxFrozen = -1 }},
		{"pause.stopped_gc_after", func(c *Config) { c.Pause.StoppedGCAfter = time.Millisecond }},
		{"drain.wait", func(c *Config) { c.Drain.Wait = -1 }},
		{"drain.wait", func(c *Config) { c.Drain.Wait = time.Hour }},
		{"drain.on_sigterm", func(c *Config) { c.Drain.OnSigterm = "" }},
		{"runtime.cleanup_ttl", func(c *Config) { c.Runtime.CleanupTTL = 1 }},
		{"runtime.clock_grace", func(c *Config) { c.Runtime.ClockGrace = time.Millisecond }},
		{"runtime.clock_grace", func(c *Config) { c.Runtime.ClockGrace = 25 * time.Hour }},
		{"runtime.event_history_limit", func(c *Config) { c.Runtime.EventHistoryLimit = 99 }},
		{"runtime.event_history_limit", func(c *Config) { c.Runtime.EventHistoryLimit = -1 }},
		{"runtime.health_timeout", func(c *Config) { c.Runtime.HealthTimeout = 0 }},
		{"runtime.hook_timeout", func(c *Config) { c.Runtime.HookTimeout = 2 * time.Hour }},
		{"runtime.host_uid", func(c *Config) { c.Runtime.HostUID = -1 }},
		{"runtime.host_gid", func(c *Config) { c.Runtime.HostGID = -1 }},
		{"runtime.pids_limit", func(c *Config) { c.Runtime.PidsLimit = 63 }},
		{"runtime.pids_limit", func(c *Config) { c.Runtime.PidsLimit = 4194305 }},
		{"runtime.memory_limit", func(c *Config) { c.Runtime.MemoryLimit = 16<<20 - 1 }},
		{"runtime.memory_limit", func(c *Config) { c.Runtime.MemoryLimit = -1 }},
		{"mounts.allow", func(c *Config) { c.Mounts.Allow = []string{"/srv", "home"} }},
		{"mounts.allow", func(c *Config) { c.Mounts.Allow = []string{"/srv/../etc"} }},
		{"docker.resolvers", func(c *Config) { c.Docker.Resolvers = []string{"10.0.0.2", "dns.example"} }},
		{"runtime.dns_port", func(c *Config) { c.Runtime.DNSPort = 65536 }},
		{"runtime.network_mode", func(c *Config) { c.Runtime.NetworkMode = "closed" }},
		{"security.profile", func(c *Config) { c.Security.Profile = "" }},
		{"runtime.entrypoint", func(c *Config) { c.Runtime.Entrypoint = "yes" }},
		{"security.profile", func(c *Config) { c.Security.Profile = "Hardened" }},
		{"security.allow", func(c *Config) { c.Security.Allow = []string{"NET_RAW", "ALL"} }},
		{"artifacts.on_log_limit", func(c *Config) { c.Artifacts.OnLogLimit = "stop" }},
		{"runtime.event_retention_ttl", func(c *Config) { c.Runtime.EventRetentionTTL = time.Millisecond }},
		{"runtime.interrupted_create", func(c *Config) { c.Runtime.InterruptedCreate = "" }},
		{"runtime.engine_death", func(c *Config) { c.Runtime.EngineDeath = "Restart" }},
		{"runtime.stop_grace", func(c *Config) { c.Runtime.StopGrace = 2 * time.Hour }},
		{"runtime.cancel_grace", func(c *Config) { c.Runtime.CancelGrace = -1 }},
		{"runtime.resync_interval", func(c *Config) { c.Runtime.ResyncInterval = 999 * time.Millisecond }},
		{"metrics.max_sandboxes", func(c *Config) { c.Metrics.MaxSandboxes = 1001 }},
		{"runtime.workers", func(c *Config) { c.Runtime.Workers = 65 }},
		{"runtime.orphan_sweep", func(c *Config) { c.Runtime.OrphanSweep = "dryrun" }},
		{"artifacts.exec_output_root", func(c *Config) { c.Artifacts.ExecOutputRoot = "logs" }},
		{"artifacts.exec_output_root", func(c *Config) { c.Artifacts.ExecOutputRoot = "//" }},
		{"limits.sandboxes_per_caller", func(c *Config) { c.Limits.SandboxesPerCaller = -1 }},
		{"limits.pending_per_caller", func(c *Config) { c.Limits.PendingPerCaller = -1 }},
		{"limits.execs_per_caller", func(c *Config) { c.Limits.ExecsPerCaller = -1 }},
		{"disk.low_water", func(c *Config) { c.Disk.LowWater = -1 }},
		{"disk.reserve", func(c *Config) { c.Disk.Reserve = -1 }},
		{"agents.session_limit", func(c *Config) { c.Agents.SessionLimit = 0 }},
		{"artifacts.sandbox_max_bytes", func(c *Config) { c.Artifacts.SandboxMaxBytes = -1 }},
		{"artifacts.exec_log_max_bytes", func(c *Config) { c.Artifacts.ExecLogMaxBytes = -1 }},
		{"backup.interval", func(c *Config) { c.Backup.Interval = time.Second }},
		{"backup.dir", func(c *Config) { c.Backup.Dir = "backups" }},
		{"backup.keep", func(c *Config) { c.Backup.Keep = 0 }},
		{"log.level", func(c *Config) { c.Log.Level = "loud" }},
		{"log.format", func(c *Config) { c.Log.Format = "xml" }},
	}
	tried := map[string]bool{}
	for _, tt := range tests {
		tried[tt.key] = true
		c := Default()
		tt.spoil(&c)
		err := c.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), tt.key+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", tt.key, err)
		}
	}
	for _, k := range table {
		if !tried[k.Name] && k.rule.kind != "boolean" {
			t.Errorf("%s has no bad value here", k.Name)
		}
	}
}

func TestValidateAccepts(t *testing.T) {
	for name, set := range map[string]func(*Config){
		"http off":                    func(c *Config) { c.HTTP.Listen = "off" },
		"all interfaces":              func(c *Config) { c.HTTP.Listen = ":0" },
		"IPv6":                        func(c *Config) { c.HTTP.Listen = "[::1]:9478" },
		"engine on a socket":          func(c *Config) { c.Docker.Host = "unix:///run/user/1000/docker.sock" },
		"engine on TCP":               func(c *Config) { c.Docker.Host = "tcp://127.0.0.1:2375" },
		"no idle stop":                func(c *Config) { c.Runtime.IdleTTL = 0 },
		"a timeout for all":           func(c *Config) { c.Runtime.Timeout = time.Second },
		"frozen forever":              func(c *Config) { c.Pause.FreezeDuration, c.Pause.MaxFrozen, c.Pause.StoppedGCAfter = 0, 0, 0 },
		"history forever":             func(c *Config) { c.Runtime.EventRetentionTTL = 0 },
		"a short history":             func(c *Config) { c.Runtime.EventHistoryLimit = 100 },
		"execs that end at the limit": func(c *Config) { c.Artifacts.OnLogLimit = OnLogLimitKill },
		"no grace":                    func(c *Config) { c.Runtime.StopGrace = 0 },
		"logs somewhere else":         func(c *Config) { c.Artifacts.ExecOutputRoot = "/srv/logs" },
		"logs without limit":          func(c *Config) { c.Artifacts.ExecLogMaxBytes = 0 },
		"a memory limit for all":      func(c *Config) { c.Runtime.MemoryLimit = 16 << 20 },
		"servers of the engine's own": func(c *Config) { c.Docker.Resolvers = []string{"10.0.0.2", "fd00::2"} },
		"settings that loosen": func(c *Config) {
			c.Security.Allow = []string{"NET_RAW", "seccomp=unconfined", "no_new_privileges=false"}
		},
		"hardened for all":                  func(c *Config) { c.Security.Profile = ProfileHardened },
		"roots for mounts":                  func(c *Config) { c.Mounts.Allow, c.Mounts.AllowSystem = []string{"/", "/srv"}, true },
		"the largest pool":                  func(c *Config) { c.Docker.SubnetPool = netip.MustParsePrefix("10.0.0.0/8") },
		"an orphan sweep that only reports": func(c *Config) { c.Runtime.OrphanSweep = OrphanSweepDryRun },
	} {
		c := Default()
		set(&c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadUnreadable(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(dir, "huge")
	if err := os.WriteFile(huge, make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	absent := filepath.Join(dir, "absent.toml")
	for file, want := range map[string]string{
		absent: "configuration file " + absent + " cannot be read: no such file or directory",
		dir:    "configuration file " + dir + " cannot be read: it is not a regular file",
		fifo:   "configuration file " + fifo + " cannot be read: it is not a regular file",
		huge:   "configuration file " + huge + " cannot be read: it is larger than 1048576 bytes",
	} {
		if _, _, err := Load(file, Paths{}); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	if _, _, err := Load(absent, Paths{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent file that was named: %v", err)
	}
	if _, _, err := Load("", Paths{ConfigFile: dir}); err == nil {
		t.Error("an unreadable default file is no error")
	}
}

func TestLoadFillsInThePaths(t *testing.T) {
	p := Paths{ConfigFile: filepath.Join(t.TempDir(), "config.toml"), DataDir: "/d/agents-sandbox"}
	want := Default()
	want.Artifacts.ExecOutputRoot = "/d/agents-sandbox/exec-logs"
	want.Backup.Dir = "/d/agents-sandbox/backups"
	if c, _, err := Load("", p); err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("without a file: %+v, %v", c, err)
	}
	if err := os.WriteFile(p.ConfigFile, []byte("[artifacts]\nexec_output_root = \"/srv/logs\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want.Artifacts.ExecOutputRoot = "/srv/logs"
	for _, file := range []string{"", p.ConfigFile} {
		if c, _, err := Load(file, p); err != nil || !reflect.DeepEqual(c, want) {
			t.Errorf("with a file (named %q): %+v, %v", file, c, err)
		}
	}
}

func TestLoadForbidden(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, nil, 0); err != nil {
		t.Fatal(err)
	}
	_, _, err := Load("", Paths{ConfigFile: file})
	if want := "configuration file " + file + " cannot be read: permission denied"; err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "4096": 4096, "7B": 7, "1KiB": 1024, "3 MiB": 3 << 20, "1GiB": 1 << 30, "2TiB": 2 << 40, "1PiB": 1 << 50,
		"5kB": 5 << 10, "5KB": 5 << 10, "512MB": 512 << 20, "512m": 512 << 20, "1gib": 1 << 30, "1G": 1 << 30, "1.5GiB": 3 << 29,
		"1125899906842623": 1<<50 - 1,
	} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "-0", "+1", "1e9", "0x1p30", "GiB", "1GiBs", "1 PiB ", "1125899906842625", "2PiB", "9223372036854775808", "9000000TiB", "0x10"} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
	for size, want := range map[Size]string{0: "0", 1: "1", 1000: "1000", 1024: "1KiB", 1 << 30: "1GiB", 3 << 20: "3MiB", 1 << 50: "1024TiB"} {
		if got := size.String(); !reflect.DeepEqual(got, want) {
			t.Errorf("String(%d) = %s, want %s", int64(size), got, want)
		}
	}
}

func TestLevel(t *testing.T) {
	for level, want := range map[Level]slog.Level{"debug": slog.LevelDebug, "warn": slog.LevelWarn, "?": slog.LevelInfo} {
		if got := level.Level(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s", level, got)
		}
	}
}

// TestKeysOfOlderDaemonsAreIgnored with a warning; their sections are checked as always.
func TestKeysOfOlderDaemonsAreIgnored(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	text := "[runtime]\nlog_level = \"debug\"\nidle_ttl = \"5m\"\n[artifacts]\nexec_output_template = \"{sandbox_id}/{exec_id}\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, origin, err := Load(file, Paths{})
	if err != nil || c.Runtime.IdleTTL != 5*time.Minute {
		t.Fatalf("%v, %v", c.Runtime.IdleTTL, err)
	}
	want := []string{"artifacts.exec_output_template has no effect: the names of logs are fixed", "runtime.log_level has no effect: write log.level"}
	if got := origin.Warnings(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestE2BIsExposedOnPurpose: an address that is not on loopback needs TLS or a key that allows plain HTTP.
func TestE2BIsExposedOnPurpose(t *testing.T) {
	for listen, local := range map[string]bool{
		"": true, "127.0.0.1:3000": true, "127.0.0.2:0": true, "[::1]:3000": true, "localhost:3000": true, "[::ffff:127.0.0.1]:3000": true,
		"0.0.0.0:3000": false, ":3000": false, "[::]:3000": false, "192.0.2.1:3000": false, "host.example.com:3000": false, "localhost.example.com:3000": false,
	} {
		for name, e := range map[string]E2B{
			"nothing": {}, "TLS": {Cert: "/c", Key: "/k"}, "plain HTTP": {AllowPlainHTTP: true},
		} {
			c := Default()
			e.Listen, e.Templates = listen, c.E2B.Templates
			c.E2B = e
			err := c.Validate()
			if want := local || name != "nothing"; (err == nil) != want {
				t.Errorf("%q with %s: %v", listen, name, err)
			}
			if err != nil && (!strings.Contains(err.Error(), "e2b.cert") || !strings.Contains(err.Error(), "e2b.allow_plain_http")) {
				t.Errorf("the way out is missing: %v", err)
			}
		}
	}
}

func TestTemplatesAreATable(t *testing.T) {
	c, set, err := parse("file", []byte("[e2b]\nlisten = \"[::1]:0\"\n[e2b.templates]\nbase = \"debian:13\"\n\"my tool\" = \"x/y@1\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"base": "debian:13", "my tool": "x/y@1"}; !reflect.DeepEqual(c.E2B.Templates, want) || !set["e2b.templates"] {
		t.Errorf("%v, %v", c.E2B, set)
	}
	if got := literal(c.E2B.Templates); got != `{"base" = "debian:13", "my tool" = "x/y@1"}` {
		t.Error(got)
	}
}
