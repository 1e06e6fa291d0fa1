package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agbox/agbox/config"
)

// homed sets new directories for the process and returns the path of the configuration file.
func homed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run, err := os.MkdirTemp("", "agboxd") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("XDG_DATA_HOME", filepath.Join(dir, "data"))
	t.Setenv("XDG_RUNTIME_DIR", run)
	file := filepath.Join(dir, "agents-sandbox", "config.toml")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

func writeConfig(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// outcome runs one command line and returns its results.
func outcome(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestConfigCheck(t *testing.T) {
	file := homed(t)
	if code, out, errs := outcome("config", "check"); code != exitOK || errs != "" ||
		out != "configuration file "+file+": there is none, and none is needed; the defaults hold\n" {
		t.Errorf("without a file: %d %q %q", code, out, errs)
	}
	writeConfig(t, file, "[runtime]\nidle_ttl = \"5m\"\n")
	if code, out, errs := outcome("config", "check"); code != exitOK || errs != "" || out != "configuration file "+file+": ok\n" {
		t.Errorf("a good file: %d %q %q", code, out, errs)
	}
	other := filepath.Join(t.TempDir(), "other.toml")
	writeConfig(t, other, "[runtime]\nworkers = 0\nidle = 5\n[log]\nlevel = \"loud\"\n")
	code, out, errs := outcome("config", "check", "--config", other)
	if code != exitUsage || out != "" {
		t.Errorf("a bad file: %d %q", code, out)
	}
	for _, want := range []string{other, "runtime.workers: 0 is out of range", "runtime.idle: unknown key", `log.level: "loud" is unknown`} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q lacks %q", errs, want)
		}
	}
	if code, _, errs := outcome("config", "check", "--config", other+"x"); code != exitUsage || !strings.Contains(errs, "no such file") {
		t.Errorf("an absent file that was named: %d %q", code, errs)
	}
}

// With such a root every create would wait for ever for its directories.
func TestAnUnsafeRootFailsTheCheckAndTheStart(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, data string) (configuration string)
		want string
	}{
		{"log root is a link", func(t *testing.T, data string) string {
			link(t, data, filepath.Join(data, "exec-logs"))
			return ""
		}, "artifacts.exec_output_root can't be used: "},
		{"configured log root is a link", func(t *testing.T, data string) string {
			link(t, data, filepath.Join(data, "l"))
			return "[artifacts]\nexec_output_root = \"" + filepath.Join(data, "l") + "\"\n"
		}, "/l is a symbolic link; name the directory that it leads to"},
		{"log root escapes", func(_ *testing.T, data string) string {
			return "[artifacts]\nexec_output_root = \"" + data + "/../logs\"\n"
		}, `artifacts.exec_output_root: "`},
		{"log root is another user's", func(t *testing.T, data string) string {
			return "[artifacts]\nexec_output_root = \"" + foreign(t, data, "logs") + "\"\n"
		}, "belongs to user 12345, not to agboxd's user 0: change its owner or configure another directory"},
		{"root of sandboxes' files is a link", func(t *testing.T, data string) string {
			link(t, data, filepath.Join(data, "s"))
			return ""
		}, "the directory of sandboxes' files can't be used: "},
		{"data directory is another user's", func(t *testing.T, data string) string {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			if err := os.Chown(data, 12345, 12345); err != nil {
				t.Fatal(err)
			}
			return ""
		}, "the data directory can't be used: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := homed(t)
			data := filepath.Join(os.Getenv("XDG_DATA_HOME"), "agents-sandbox")
			if err := os.MkdirAll(data, 0o700); err != nil {
				t.Fatal(err)
			}
			if text := c.make(t, data); text != "" {
				writeConfig(t, file, text)
			}
			if code, _, errs := outcome("config", "check"); code != exitUsage || !strings.Contains(errs, c.want) {
				t.Errorf("config check: %d %q", code, errs)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // ends a daemon that starts
			defer cancel()
			var errs bytes.Buffer
			if code := run(ctx, nil, &errs, &errs); code != exitUsage || !strings.Contains(errs.String(), c.want) {
				t.Errorf("start: %d %q", code, errs.String())
			}
			if _, err := os.Stat(filepath.Join(data, "ids.db")); err == nil {
				t.Error("the refused start made a database")
			}
		})
	}
}

func link(t *testing.T, data, at string) {
	t.Helper()
	target := filepath.Join(data, "real")
	if err := errors.Join(os.Mkdir(target, 0o700), os.Symlink(target, at)); err != nil {
		t.Fatal(err)
	}
}

func foreign(t *testing.T, data, name string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := filepath.Join(data, name)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestConfigShow(t *testing.T) {
	file := homed(t)
	writeConfig(t, file, "[runtime]\nidle_ttl = \"300s\"\n")
	code, out, errs := outcome("config", "show")
	if code != exitOK || errs != "" {
		t.Fatalf("%d %q", code, errs)
	}
	for _, want := range []string{
		"[runtime]\nidle_ttl = \"5m\" # " + file + "\n", "workers = 8 # default\n",
		`exec_output_root = "` + filepath.Join(os.Getenv("XDG_DATA_HOME"), "agents-sandbox/exec-logs") + `" # default`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\nlacks %q", out, want)
		}
	}
	if _, err := loaded(t, out); err != nil {
		t.Errorf("what is shown is no configuration: %v", err)
	}
}

func loaded(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Load(file, config.Paths{})
	return cfg, err
}

// lines is a log in which a test can wait for a line.
type lines struct {
	mu   sync.Mutex
	text string
	more chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += string(p)
	close(l.more)
	l.more = make(chan struct{})
	return len(p), nil
}

// next waits for a line with all parts, removes it and returns it. It keeps the lines before it, because concurrent parts of a daemon log
// in no fixed order.
func (l *lines) next(t *testing.T, parts ...string) string {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		l.mu.Lock()
		more, at := l.more, 0
		for line := range strings.Lines(l.text) {
			if all(line, parts) {
				l.text = l.text[:at] + l.text[at+len(line):]
				l.mu.Unlock()
				return line
			}
			at += len(line)
		}
		l.mu.Unlock()
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("no line with %q ", parts)
		}
	}
}

func all(line string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(line, p) {
			return false
		}
	}
	return true
}

// A reload needs no engine. A signal during the start is not lost.
func TestHangupReloadsTheConfiguration(t *testing.T) {
	file := homed(t)
	const engine = "[http]\nlisten = \"127.0.0.1:0\"\n[docker]\nhost = \"unix:///nonexistent/docker.sock\"\n"
	shim := filepath.Join(t.TempDir(), "shim")
	writeConfig(t, shim, "no program")
	writeConfig(t, file, engine)
	ctx, stop := context.WithCancel(context.Background())
	log, ended := &lines{more: make(chan struct{})}, make(chan int)
	go func() { ended <- run(ctx, []string{"--shim", shim}, log, log) }()
	defer func() {
		stop()
		if code := <-ended; code != exitOK {
			t.Errorf("the daemon ended with %d", code)
		}
	}()
	hangup := func(text string) {
		t.Helper()
		writeConfig(t, file, engine+text)
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	url := "http://" + field(t, log.next(t, "http serves"), "listen")

	hangup("[runtime]\nidle_ttl = \"1h\"\nworkers = 3\n[log]\nlevel = \"debug\"\n")
	log.next(t, `"INFO"`, "configuration is reloaded", `["runtime.idle_ttl","log.level"]`)
	log.next(t, `"WARN"`, "need a restart", `["runtime.workers"]`)

	hangup("[runtime]\nidle_ttl = \"soon\"\n")
	log.next(t, `"ERROR"`, "not reloaded; the old values hold", "runtime.idle_ttl")

	hangup("[runtime]\nidle_ttl = \"1h\"\n") // the bad file changed nothing
	log.next(t, `"INFO"`, "configuration is reloaded", `["log.level"]`)
	scrape(t, url, `agboxd_config_reloads_total{result="ok"} 2`, `agboxd_config_reloads_total{result="error"} 1`)
}

// field returns the value of a key of a JSON line.
func field(t *testing.T, line, key string) string {
	t.Helper()
	_, rest, ok := strings.Cut(line, `"`+key+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("%s has no %s", line, key)
	}
	return value
}

func scrape(t *testing.T, url string, want ...string) {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if !all(body.String(), want) {
		t.Errorf("the metrics lack one of %q", want)
	}
}

// Every reloadable key must reach its users: a forgotten key would be logged as reloaded and have no effect.
func TestEveryReloadableKeyReachesItsUser(t *testing.T) {
	elsewhere := map[string]bool{ // used by the logger, the store, the drainer, the disk watcher, the TLS listener, the metrics and the keeper of sessions
		"log.level": true, "runtime.event_history_limit": true, "drain.wait": true, "drain.on_sigterm": true,
		"disk.low_water": true, "metrics.max_sandboxes": true, "tcp.cert": true, "tcp.key": true, "tcp.client_ca": true, "tcp.clients": true,
		"agents.session_limit": true, "e2b.templates": true, "e2b.cert": true, "e2b.key": true,
	}
	other := map[string]string{"duration": `"77s"`, "integer": "777", "size": `"77MiB"`, "boolean": "true", "list": `["/srv"]`}
	words := map[string]string{
		"runtime.interrupted_create": `"fail"`, "runtime.engine_death": `"fail"`, "runtime.orphan_sweep": `"dry-run"`,
		"artifacts.on_log_limit": `"kill"`, "security.profile": `"hardened"`, "security.allow": `["NET_RAW"]`, "runtime.entrypoint": `"run"`, "runtime.network_mode": `"none"`,
	}
	for _, k := range config.Keys() {
		if !k.Reload || elsewhere[k.Name] {
			continue
		}
		section, name, _ := strings.Cut(k.Name, ".")
		value := cmp.Or(words[k.Name], other[k.Type()])
		cfg, err := loaded(t, "["+section+"]\n"+name+" = "+value+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if settings(cfg) == settings(config.Default()) && callerLimits(cfg) == callerLimits(config.Default()) && reflect.DeepEqual(rules(cfg), rules(config.Default())) {
			t.Errorf("%s is lost on its way", k.Name)
		}
	}
}
