package config

import (
	"log/slog"
	"net/netip"
	"time"
)

// Values of the keys that take one of a few words.
const (
	HTTPOff = "off" // http.listen

	InterruptedCreateResume = "resume" // runtime.interrupted_create
	InterruptedCreateFail   = "fail"

	EngineDeathRestart = "restart" // runtime.engine_death
	EngineDeathFail    = "fail"

	OrphanSweepRemove = "remove" // runtime.orphan_sweep
	OrphanSweepDryRun = "dry-run"

	LogFormatJSON = "json" // log.format
	LogFormatText = "text"
)

// Config is the whole configuration. The zero value is not valid; start from Default.
type Config struct {
	HTTP      HTTP      `toml:"http"`
	Docker    Docker    `toml:"docker"`
	Runtime   Runtime   `toml:"runtime"`
	Artifacts Artifacts `toml:"artifacts"`
	Log       Log       `toml:"log"`
}

// HTTP configures /metrics, /healthz and /readyz.
type HTTP struct {
	// Listen is host:port, or HTTPOff. A port that is taken does not keep the daemon from starting.
	Listen string `toml:"listen"`
}

// Docker configures the engine.
type Docker struct {
	// Host is the engine's address (unix:///path or tcp://host:port); empty means $DOCKER_HOST or the default socket.
	Host string `toml:"host"`
	// SubnetPool is the IPv4 block, /8 to /24, that the networks of sandboxes are cut from.
	SubnetPool netip.Prefix `toml:"subnet_pool"`
	// PullTimeout bounds the pull of one image; 1 s to 24 h.
	PullTimeout time.Duration `toml:"pull_timeout"`
}

// Runtime configures how sandboxes live.
type Runtime struct {
	// IdleTTL stops a sandbox that has had no exec for so long; 0 means never. A spec may say otherwise.
	IdleTTL time.Duration `toml:"idle_ttl"`
	// EventRetentionTTL is how long a deleted sandbox and its events stay readable; 0 means for ever.
	EventRetentionTTL time.Duration `toml:"event_retention_ttl"`
	// InterruptedCreate says whether a create that the daemon's end cut off goes on or fails.
	InterruptedCreate string `toml:"interrupted_create"`
	// EngineDeath says whether what ran when the engine or the host died is started again or fails.
	EngineDeath string `toml:"engine_death"`
	// StopGrace is the time between TERM and KILL of a stop; 0 means KILL at once. At most 1 h.
	StopGrace time.Duration `toml:"stop_grace"`
	// CancelGrace is the time between TERM and KILL of a cancelled exec; 0 means KILL at once. At most 1 h.
	CancelGrace time.Duration `toml:"cancel_grace"`
	// ResyncInterval is the time between two comparisons of everything with the engine; 1 s to 1 h.
	ResyncInterval time.Duration `toml:"resync_interval"`
	// Workers is how many sandboxes are worked on at the same time; 1 to 64.
	Workers int `toml:"workers"`
	// OrphanSweep says whether what is left of deleted sandboxes is removed or only reported.
	OrphanSweep string `toml:"orphan_sweep"`
}

// Artifacts configures the logs of execs.
type Artifacts struct {
	// ExecOutputRoot is an absolute directory. Empty means exec-logs in the data directory; Load fills that in.
	ExecOutputRoot string `toml:"exec_output_root"`
	// ExecLogLimit bounds each of the two logs of an exec; 0 means no bound.
	ExecLogLimit Size `toml:"exec_log_limit"`
}

// Log configures the daemon's own log.
type Log struct {
	// Level is debug, info, warn or error.
	Level Level `toml:"level"`
	// Format is LogFormatJSON or LogFormatText.
	Format string `toml:"format"`
}

// Default returns the configuration of a daemon without a file. It is valid.
func Default() Config {
	return Config{
		HTTP:   HTTP{Listen: "127.0.0.1:9478"},
		Docker: Docker{SubnetPool: netip.MustParsePrefix("10.213.0.0/16"), PullTimeout: 10 * time.Minute},
		Runtime: Runtime{
			IdleTTL:           30 * time.Minute,
			EventRetentionTTL: 168 * time.Hour,
			InterruptedCreate: InterruptedCreateResume,
			EngineDeath:       EngineDeathRestart,
			StopGrace:         10 * time.Second, // docker stop's default
			CancelGrace:       10 * time.Second,
			ResyncInterval:    time.Minute,
			Workers:           8,
			OrphanSweep:       OrphanSweepRemove,
		},
		Artifacts: Artifacts{ExecLogLimit: 1 << 30},
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
