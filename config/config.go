// Package config has the daemon's configuration and the paths of its files.
//
// A file is TOML with strict keys: an unknown key is an error. Every key has a default, so a file is optional. The table in
// keys.go describes each key; docs/configuration.md and config/examples/agboxd.toml are generated from it.
//
// The package reads files; it does not log or create directories.
package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/agbox/agbox/apis/quantity"
)

// Values of the keys that accept a fixed set of words.
const (
	SocketModeOwner = "0600" // socket.mode
	SocketModeGroup = "0660"

	HTTPOff = "off" // http.listen

	InterruptedCreateResume = "resume" // runtime.interrupted_create
	InterruptedCreateFail   = "fail"

	EngineDeathRestart = "restart" // runtime.engine_death
	EngineDeathFail    = "fail"

	OrphanSweepRemove = "remove" // runtime.orphan_sweep
	OrphanSweepDryRun = "dry-run"

	OnSigtermAuto   = "auto" // drain.on_sigterm
	OnSigtermPark   = "park"
	OnSigtermDetach = "detach"

	OnLogLimitDrop = "drop" // artifacts.on_log_limit
	OnLogLimitKill = "kill"

	EntrypointAuto = "auto" // runtime.entrypoint
	EntrypointRun  = "run"
	EntrypointSkip = "skip"

	NetworkOpen     = "open" // runtime.network_mode
	NetworkInternet = "internet"
	NetworkInternal = "internal"
	NetworkNone     = "none"

	ProfileStandard = "standard" // security.profile
	ProfileHardened = "hardened"

	LogFormatJSON = "json" // log.format
	LogFormatText = "text"
)

// Config is the whole configuration. The zero value is not valid; start from Default. The table of keys.go has the meaning and
// the range of each field, and whether it can be reloaded.
type Config struct {
	Socket    Socket    `toml:"socket"`
	TCP       TCP       `toml:"tcp"`
	E2B       E2B       `toml:"e2b"`
	HTTP      HTTP      `toml:"http"`
	Metrics   Metrics   `toml:"metrics"`
	Docker    Docker    `toml:"docker"`
	Runtime   Runtime   `toml:"runtime"`
	Mounts    Mounts    `toml:"mounts"`
	Security  Security  `toml:"security"`
	Pause     Pause     `toml:"pause"`
	Drain     Drain     `toml:"drain"`
	Agents    Agents    `toml:"agents"`
	Artifacts Artifacts `toml:"artifacts"`
	Limits    Limits    `toml:"limits"`
	Disk      Disk      `toml:"disk"`
	Backup    Backup    `toml:"backup"`
	Log       Log       `toml:"log"`
}

// Socket configures who may use the gRPC socket.
type Socket struct {
	Group string `toml:"group"`
	Mode  string `toml:"mode"`
}

// FileMode returns the permissions of the socket: Mode, or by default 0660 with a Group and 0600 without one.
func (s Socket) FileMode() os.FileMode {
	if s.Mode == SocketModeGroup || s.Mode == "" && s.Group != "" {
		return 0o660
	}
	return 0o600
}

// TCP configures a second listener of the API, with mutual TLS.
type TCP struct {
	Listen   string   `toml:"listen"`
	Cert     string   `toml:"cert"`
	Key      string   `toml:"key"`
	ClientCA string   `toml:"client_ca"`
	Clients  []string `toml:"clients"`
}

// E2B configures the gateway that serves the API of E2B's SDKs.
type E2B struct {
	Listen         string            `toml:"listen"`
	Cert           string            `toml:"cert"`
	Key            string            `toml:"key"`
	AllowPlainHTTP bool              `toml:"allow_plain_http"`
	Domain         string            `toml:"domain"`
	Templates      map[string]string `toml:"templates"`
}

// HTTP configures /metrics, /healthz and /readyz.
type HTTP struct {
	Listen string `toml:"listen"`
}

// Metrics configures what /metrics has.
type Metrics struct {
	MaxSandboxes int `toml:"max_sandboxes"`
}

// Docker configures the engine.
type Docker struct {
	Host           string        `toml:"host"`
	SubnetPool     netip.Prefix  `toml:"subnet_pool"`
	Resolvers      []string      `toml:"resolvers"`
	PullTimeout    time.Duration `toml:"pull_timeout"`
	CredentialsDir string        `toml:"credentials_dir"`
}

// Runtime configures the lifecycle of sandboxes.
type Runtime struct {
	IdleTTL           time.Duration `toml:"idle_ttl"`
	Timeout           time.Duration `toml:"timeout"`
	CleanupTTL        time.Duration `toml:"cleanup_ttl"`
	EventRetentionTTL time.Duration `toml:"event_retention_ttl"`
	ClockGrace        time.Duration `toml:"clock_grace"`
	EventHistoryLimit int           `toml:"event_history_limit"`
	InterruptedCreate string        `toml:"interrupted_create"`
	EngineDeath       string        `toml:"engine_death"`
	HealthTimeout     time.Duration `toml:"health_timeout"`
	HookTimeout       time.Duration `toml:"hook_timeout"`
	StopGrace         time.Duration `toml:"stop_grace"`
	CancelGrace       time.Duration `toml:"cancel_grace"`
	HostUID           int           `toml:"host_uid"`
	HostGID           int           `toml:"host_gid"`
	PidsLimit         int           `toml:"pids_limit"`
	MemoryLimit       Size          `toml:"memory_limit"`
	ResyncInterval    time.Duration `toml:"resync_interval"`
	Workers           int           `toml:"workers"`
	OrphanSweep       string        `toml:"orphan_sweep"`
	Entrypoint        string        `toml:"entrypoint"`
	NetworkMode       string        `toml:"network_mode"`
	NetworkRequired   bool          `toml:"network_required"`
	DNSPort           int           `toml:"dns_port"`
}

// Mounts configures which host paths sandboxes may mount or copy.
type Mounts struct {
	AllowSystem bool     `toml:"allow_system"`
	Allow       []string `toml:"allow"`
}

// Security configures what the processes of sandboxes may do.
type Security struct {
	Profile string   `toml:"profile"`
	Allow   []string `toml:"allow"`
}

// Pause configures when paused sandboxes are demoted and deleted.
type Pause struct {
	FreezeDuration time.Duration `toml:"freeze_duration"`
	MaxFrozen      int           `toml:"max_frozen"`
	StoppedGCAfter time.Duration `toml:"stopped_gc_after"`
}

// Drain configures what happens to agents when the daemon ends.
type Drain struct {
	Wait      time.Duration `toml:"wait"`
	OnSigterm string        `toml:"on_sigterm"`
}

// Agents configures what is kept of agents.
type Agents struct {
	SessionLimit Size `toml:"session_limit"`
}

// Artifacts configures the logs of execs.
type Artifacts struct {
	ExecOutputRoot  string `toml:"exec_output_root"`
	ExecLogMaxBytes Size   `toml:"exec_log_max_bytes"`
	SandboxMaxBytes Size   `toml:"sandbox_max_bytes"`
	OnLogLimit      string `toml:"on_log_limit"`
}

// Limits configures what one caller may have.
type Limits struct {
	SandboxesPerCaller int `toml:"sandboxes_per_caller"`
	PendingPerCaller   int `toml:"pending_per_caller"`
	ExecsPerCaller     int `toml:"execs_per_caller"`
}

// Disk configures what happens when a disk fills.
type Disk struct {
	LowWater Size `toml:"low_water"`
	Reserve  Size `toml:"reserve"`
}

// Backup configures scheduled backups.
type Backup struct {
	Interval time.Duration `toml:"interval"`
	Dir      string        `toml:"dir"`
	Keep     int           `toml:"keep"`
}

// Log configures the daemon's own log.
type Log struct {
	Level  Level  `toml:"level"`
	Format string `toml:"format"`
}

// Default returns the configuration of a daemon without a file. It is valid.
func Default() Config {
	return Config{
		TCP:     TCP{Clients: []string{}}, // never nil: Config is compared
		E2B:     E2B{Templates: map[string]string{}},
		HTTP:    HTTP{Listen: "127.0.0.1:9478"},
		Metrics: Metrics{MaxSandboxes: 100},
		Docker:  Docker{SubnetPool: netip.MustParsePrefix("10.213.0.0/16"), Resolvers: []string{}, PullTimeout: 10 * time.Minute},
		Runtime: Runtime{
			IdleTTL:           30 * time.Minute,
			EventRetentionTTL: 168 * time.Hour,
			ClockGrace:        10 * time.Minute,
			InterruptedCreate: InterruptedCreateResume,
			EngineDeath:       EngineDeathRestart,
			HealthTimeout:     5 * time.Minute,
			HookTimeout:       5 * time.Minute,
			StopGrace:         10 * time.Second, // docker stop's default
			CancelGrace:       10 * time.Second,
			PidsLimit:         4096,
			ResyncInterval:    time.Minute,
			Workers:           8,
			OrphanSweep:       OrphanSweepRemove,
			Entrypoint:        EntrypointAuto,
			NetworkMode:       NetworkInternet,
			DNSPort:           10053,
		},
		Mounts:    Mounts{Allow: []string{}}, // never nil: Config is compared
		Security:  Security{Profile: ProfileStandard, Allow: []string{}},
		Pause:     Pause{FreezeDuration: 24 * time.Hour, MaxFrozen: 10, StoppedGCAfter: 720 * time.Hour},
		Drain:     Drain{Wait: 10 * time.Minute, OnSigterm: OnSigtermAuto},
		Agents:    Agents{SessionLimit: 64 << 20},
		Artifacts: Artifacts{ExecLogMaxBytes: 1 << 30, SandboxMaxBytes: 10 << 30, OnLogLimit: OnLogLimitDrop},
		Backup:    Backup{Keep: 7},
		Log:       Log{Level: "info", Format: LogFormatJSON},
	}
}

// Level names a level of the log. It is a slog.Leveler.
type Level string

// Level returns the level for slog; info for a name that Validate refuses.
func (l Level) Level() slog.Level {
	return logLevels[l]
}

var logLevels = map[Level]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
}

// Size is a number of bytes, from 0 to 1 PiB, written as quantity.Bytes reads it.
type Size int64

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := quantity.Bytes(string(text))
	if err != nil {
		return fmt.Errorf("%q is %w", text, err)
	}
	*s = Size(n)
	return nil
}

// String writes the size with the largest unit that divides it, so that it is read again as the same number.
func (s Size) String() string {
	n, unit := int64(s), ""
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, larger
	}
	return strconv.FormatInt(n, 10) + unit
}
