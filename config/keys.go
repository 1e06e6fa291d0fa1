package config

import (
	"reflect"
	"time"
)

// Key is one key of a configuration file.
type Key struct {
	// Name is section.key.
	Name string
	// Reload says that a running daemon takes a new value over on SIGHUP.
	Reload bool
	// Meaning is one or two sentences.
	Meaning string

	rule rule
}

// Keys returns every key that a file may set, in the order of the types. It is what is documented, checked, shown and
// reloaded; docs/configuration.md and config/examples/agboxd.toml are written from it.
func Keys() []Key { return table }

var table = []Key{
	{"http.listen", false, `Where /metrics, /healthz and /readyz are served. Keep it on loopback: there is no password. ` +
		`A port that is taken is tried again and does not keep the daemon from starting.`, listenRule},

	{"docker.host", false, `The engine. Empty: $DOCKER_HOST, else /var/run/docker.sock.`, engineRule},
	{"docker.subnet_pool", false, `The IPv4 block that the networks of sandboxes are cut from. It must not be in use on this host.`, subnetRule},
	{"docker.pull_timeout", false, `How long the pull of one image may take.`, between(time.Second, 24*time.Hour)},
	{"docker.credentials_dir", false, `The directory whose config.json, as "docker login" writes it, has the credentials for pulls. ` +
		`Empty: the Docker CLI's own, $DOCKER_CONFIG or ~/.docker of the daemon's user.`, directory},

	{"runtime.idle_ttl", true, `Stop a sandbox that has had no exec for so long. A sandbox's spec.idle_ttl comes first.`, fromOr("never", time.Second)},
	{"runtime.timeout", true, `How long a sandbox whose spec has no timeout may run; what happens then says its spec.on_timeout. A new value is for those that become ` +
		`READY from then on.`, betweenOr("ever", time.Second, longestTimeout)},
	{"runtime.cleanup_ttl", true, `Delete a sandbox that has been STOPPED or FAILED for so long.`, fromOr("never", time.Second)},
	{"runtime.event_retention_ttl", true, `Keep the record and the events of a deleted sandbox for so long.`, fromOr("ever", time.Second)},
	{"runtime.clock_grace", true, `After a jump of the host's clock, a suspend, or a boot whose clock is not synchronised: how long nothing is stopped, demoted, ` +
		`deleted or purged because its time has passed. A clock that comes back in it has done no harm.`, betweenOr("no wait", time.Second, 24*time.Hour)},
	{"runtime.event_history_limit", true, `The most events that are kept of one live sandbox: past it the oldest events of execs go, those of the sandbox stay.`, countOrNone(100)},
	{"runtime.interrupted_create", true, `A create that the end of the daemon cut off: "resume" goes on with it, "fail" makes the sandbox FAILED.`,
		oneOf(InterruptedCreateResume, InterruptedCreateFail)},
	{"runtime.engine_death", true, `What ran when the engine or the host died: "restart" starts the same containers again, "fail" makes the sandbox FAILED.`,
		oneOf(EngineDeathRestart, EngineDeathFail)},
	{"runtime.health_timeout", true, `The longest wait for a required service to become healthy, whatever its healthcheck allows.`, between(time.Second, time.Hour)},
	{"runtime.hook_timeout", true, `How long one post_start_on_primary hook may run.`, between(time.Second, time.Hour)},
	{"runtime.stop_grace", true, `The time from TERM to KILL when a sandbox is stopped. "0" kills at once.`, between(0, time.Hour)},
	{"runtime.cancel_grace", true, `The time from TERM to KILL when an exec is cancelled. "0" kills at once.`, between(0, time.Hour)},
	{"runtime.pids_limit", true, `Processes and threads of a container whose spec has no pids_limit. A new value is for containers made from then on.`, count(64, 4194304)},
	{"runtime.memory_limit", true, `The memory of a container, service or not, whose spec has no memory_limit. A new value is for sandboxes that are accepted ` +
		`from then on.`, memoryOrNone},
	{"runtime.resync_interval", false, `Compare everything with the engine this often, whatever events came.`, between(time.Second, time.Hour)},
	{"runtime.workers", false, `How many sandboxes, and how many execs, are worked on at the same time.`, count(1, 64)},
	{"runtime.orphan_sweep", true, `What is left of deleted sandboxes: "remove" removes it, "dry-run" only reports it.`, oneOf(OrphanSweepRemove, OrphanSweepDryRun)},

	{"mounts.allow_system", true, `Whether a sandbox may have the engine's socket, "/" or a directory of the system as a mount or a copy: each makes it root on this ` +
		`host, or nearly so. See docs/sandbox.md for the list. What is agboxd's own is refused or covered all the same.`, yesOrNo},
	{"mounts.allow", true, `Directories outside of which no host path is mounted or copied, those of built-in tools included. Empty: no such bound.`, directories},

	{"security.profile", true, `The security profile of a sandbox whose spec has none. A new value is for sandboxes that are accepted from then on.`,
		oneOf(ProfileStandard, ProfileHardened)},

	{"pause.freeze_duration", true, `How long a PAUSED sandbox keeps its memory: then its containers are stopped, and it stays PAUSED with its files.`, fromOr("ever", time.Second)},
	{"pause.max_frozen", true, `The most PAUSED sandboxes that keep their memory: past it those paused longest are stopped, as by freeze_duration.`, countOrNone(1)},
	{"pause.stopped_gc_after", true, `Delete a PAUSED sandbox whose containers have been stopped, by one of the two above, for so long.`, fromOr("never", time.Second)},

	{"drain.wait", true, `How long busy agents may finish their work when the daemon drains; then it is saved for them, which takes up to a minute. ` +
		`TimeoutStopSec of the service must be longer than both together.`, between(0, longestDrain)},
	{"drain.on_sigterm", true, `What SIGTERM does: "park" lets agents save their work and end, "detach" ends the daemon alone, and everything works on until it is ` +
		`back. "auto": park while an agent is busy, else detach.`, oneOf(OnSigtermAuto, OnSigtermPark, OnSigtermDetach)},

	{"artifacts.exec_output_root", false, `The directory of the logs of execs, owned by the daemon's user. Empty: exec-logs in the data directory, ` +
		`$XDG_DATA_HOME/agents-sandbox (~/.local/share/agents-sandbox).`, directory},
	{"artifacts.exec_log_max_bytes", true, `The largest size of each of the two logs of an exec, stdout and stderr. A new value is for execs that start from then on.`, sizeOrNone},
	{"artifacts.sandbox_max_bytes", true, `The most that the logs of all execs of one sandbox take on disk, together with what else it writes beside them; ` +
		`never more than half of that disk. Past it output is dropped or the exec killed, as on_log_limit says; that of agents is kept. It is measured every ` +
		`two seconds, and where it can't be used up so soon every half minute.`, sizeOrNone},
	{"artifacts.on_log_limit", true, `At exec_log_max_bytes: "drop" what is past it, with a marker, or "kill" the exec. A sandbox's spec.on_log_limit comes first.`,
		oneOf(OnLogLimitDrop, OnLogLimitKill)},

	{"disk.low_water", true, `The free space of a disk under which new sandboxes, execs and prompts are refused: those of the data directory, of ` +
		`artifacts.exec_output_root, and of the engine where it is local. "0": 5 % of each, at most 512MiB.`, sizeOrAuto},
	{"disk.reserve", false, `The disk space that is held for the records, so that stops and deletes work on a full disk: once inside the database, and ` +
		`once as ballast files in the data directory. "0": 1/32 of the disk, from 512KiB to 64MiB.`, sizeOrAuto},

	{"backup.interval", false, `Make a backup of the records this often, without logs. A restart does not move the next one.`, fromOr("none", time.Minute)},
	{"backup.dir", false, `The directory of these backups. Empty: backups in the data directory; better is one on another disk.`, directory},
	{"backup.keep", false, `How many of these backups stay; the oldest go.`, count(1, 10000)},

	{"log.level", true, `The least severe level that is logged.`, levels},
	{"log.format", false, `The form of the daemon's own log.`, oneOf(LogFormatJSON, LogFormatText)},
}

// longestTimeout is that of a spec, 10 years, so that a deadline can always be counted in nanoseconds.
const longestTimeout = 3653 * 24 * time.Hour

// longestDrain leaves time to save before a drain is an hour old, which ends it.
const longestDrain = 45 * time.Minute

// Type names the kind of the key's value for people.
func (k Key) Type() string { return k.rule.kind }

// Range says which values are accepted.
func (k Key) Range() string { return k.rule.text }

// Value returns the key's value in c, as a file has it.
func (k Key) Value(c Config) string { return literal(k.field(&c).Interface()) }

// field returns the settable field of c that the key names.
func (k Key) field(c *Config) reflect.Value { return fields(reflect.ValueOf(c).Elem())[k.Name] }

// fields returns all fields of a Config by the names of their keys.
func fields(c reflect.Value) map[string]reflect.Value {
	byName := map[string]reflect.Value{}
	for i := range c.NumField() {
		section, tag := c.Field(i), c.Type().Field(i).Tag.Get("toml")
		for j := range section.NumField() {
			byName[tag+"."+section.Type().Field(j).Tag.Get("toml")] = section.Field(j)
		}
	}
	return byName
}

func names() []string {
	var list []string
	for _, k := range table {
		list = append(list, k.Name)
	}
	return list
}
