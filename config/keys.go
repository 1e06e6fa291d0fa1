package config

import (
	"math"
	"reflect"
	"time"
)

// Key is one key of a configuration file.
type Key struct {
	// Name is section.key.
	Name string
	// Reload reports whether a running daemon applies a new value on SIGHUP.
	Reload bool
	// Meaning is one or two sentences.
	Meaning string

	rule rule
}

// Keys returns every key that a file may set, in the order of the types. The table of docs/configuration.md and the sections of
// config/examples/agboxd.toml are generated from it.
func Keys() []Key { return table }

var table = []Key{
	{"socket.group", false, `The Unix group, by name or number, whose members may use the gRPC socket. Each of them can become root on this host ` +
		`(docs/security.md). Empty: only the daemon's user.`, groupRule},
	{"socket.mode", false, `The permissions of the socket. Empty: "0660" if socket.group is set, else "0600".`, socketModeRule},

	{"tcp.listen", false, `The address of a second listener of the API, for clients with certificates (docs/remote.md). Each of them can become root on this ` +
		`host. It needs the next three keys. Empty: none.`, tcpListenRule},
	{"tcp.cert", true, `The file with the daemon's certificate and its chain, PEM. A reload reads the files again, even if no key changed.`, file},
	{"tcp.key", true, `The file with the key of tcp.cert, PEM.`, file},
	{"tcp.client_ca", true, `The file with the authorities that sign the certificates of clients, PEM. After a reload the connections of clients that are ` +
		`not admitted any more are closed.`, file},
	{"tcp.clients", true, `The names of the clients that may connect: the common name of the certificate, or else its first DNS name, URI or email address. ` +
		`Empty: all clients of tcp.client_ca.`, clientNames},

	{"e2b.listen", false, `The address of the gateway for the SDKs of E2B (docs/e2b.md), such as "127.0.0.1:3000". Clients need a key of ` +
		`"agbox e2b keys". An address that is not on loopback needs TLS (the next two keys), or e2b.allow_plain_http. Empty: none.`, e2bListenRule},
	{"e2b.cert", true, `The file with the certificate that the gateway shows to clients, and its chain, PEM; with it the gateway serves HTTPS only. A reload ` +
		`reads the files again, even if no key changed. Empty: plain HTTP.`, file},
	{"e2b.key", true, `The file with the key of e2b.cert, PEM.`, file},
	{"e2b.allow_plain_http", false, `Serve plain HTTP on an address that is not on loopback. Everybody on the way can read the keys, and with a key everything in ` +
		`the sandboxes: only for a network that you trust.`, yesOrNo},
	{"e2b.domain", false, `The domain, with a port unless it is the usual one, of the host names of sandboxes' ports, PORT-ID.DOMAIN. Every name below it must lead to ` +
		`the gateway. Empty: localhost and the port of e2b.listen, which clients on this host reach.`, domainRule},
	{"e2b.templates", true, `The images of the templates that clients of the gateway name. A template without an entry is an image reference; "base" ` +
		`is agbox-dev:dev unless it is set.`, images},

	{"http.listen", false, `The address of /metrics, /healthz and /readyz. Keep it on loopback: there is no password. ` +
		`If the port is in use, the daemon starts without it and tries again.`, listenRule},

	{"metrics.max_sandboxes", true, `The most READY and PAUSED sandboxes for which /metrics has the CPU, memory, processes and I/O of each. With more it has those of none, and ` +
		`agboxd_sandbox_metrics_omitted has their number.`, bounded(1, 1000, "never")},

	{"docker.host", false, `The engine. Empty: $DOCKER_HOST, else /var/run/docker.sock.`, engineRule},
	{"docker.subnet_pool", false, `The IPv4 block of the networks of sandboxes. It must not be in use on this host.`, subnetRule},
	{"docker.resolvers", false, `The DNS servers that the engine asks for names that it does not know, if its own configuration sets them ("dns" in daemon.json). A network ` +
		`policy of the mode internet lets these questions through. Empty: those of this host's /etc/resolv.conf, as the engine reads it.`, addresses},
	{"docker.pull_timeout", false, `How long the pull of one image may take.`, bounded(time.Second, 24*time.Hour, "")},
	{"docker.credentials_dir", false, `The directory of the config.json with the credentials for pulls, as "docker login" writes it. ` +
		`Empty: the Docker CLI's own, $DOCKER_CONFIG or ~/.docker of the daemon's user.`, directory},

	{"runtime.idle_ttl", true, `Stop a sandbox after this time without an exec. A sandbox's spec.idle_ttl takes precedence.`, bounded(time.Second, 0, "never")},
	{"runtime.timeout", true, `How long a sandbox whose spec has no timeout may run; then its spec.on_timeout applies. A new value applies to sandboxes that become ` +
		`READY from then on.`, bounded(time.Second, longestTimeout, "forever")},
	{"runtime.cleanup_ttl", true, `Delete a sandbox after it has been STOPPED or FAILED for this time.`, bounded(time.Second, 0, "never")},
	{"runtime.event_retention_ttl", true, `How long the record and the events of a deleted sandbox are kept.`, bounded(time.Second, 0, "forever")},
	{"runtime.clock_grace", true, `After a jump of the host's clock, a suspend, or a boot whose clock is not synchronised: how long no deadline stops, demotes, ` +
		`deletes or purges anything. If the clock is corrected in this time, the jump had no effect.`, bounded(time.Second, 24*time.Hour, "no wait")},
	{"runtime.event_history_limit", true, `The most events kept of one live sandbox. Past it the oldest events of execs and of NETWORK_DENIED are removed; other events are kept.`, bounded(100, 0, "no bound")},
	{"runtime.interrupted_create", true, `After a restart of the daemon during a create: "resume" continues the create, "fail" makes the sandbox FAILED.`,
		oneOf(InterruptedCreateResume, InterruptedCreateFail)},
	{"runtime.engine_death", true, `After the death of the engine or the host, for a sandbox that ran: "restart" starts the same containers again, "fail" makes the sandbox FAILED.`,
		oneOf(EngineDeathRestart, EngineDeathFail)},
	{"runtime.health_timeout", true, `The longest wait for a required service to become healthy, even if its healthcheck allows more.`, bounded(time.Second, time.Hour, "")},
	{"runtime.hook_timeout", true, `How long one post_start_on_primary hook may run.`, bounded(time.Second, time.Hour, "")},
	{"runtime.stop_grace", true, `The time from TERM to KILL when a sandbox is stopped. "0" kills at once.`, bounded(0, time.Hour, "")},
	{"runtime.cancel_grace", true, `The time from TERM to KILL when an exec is cancelled. "0" kills at once.`, bounded(0, time.Hour, "")},
	{"runtime.host_uid", false, `The number of the user agbox that PID 1 makes in a container whose image has none, and HOST_UID in every container. ` +
		`"0": the daemon's own, or 1000 if that is root's. A new value applies to containers created from then on.`, bounded(1, math.MaxInt32, "the daemon's")},
	{"runtime.host_gid", false, `The same of the group, and HOST_GID.`, bounded(1, math.MaxInt32, "the daemon's")},
	{"runtime.pids_limit", true, `Processes and threads of a container whose spec has no pids_limit. A new value applies to containers created from then on.`, bounded(64, 4194304, "")},
	{"runtime.memory_limit", true, `The memory of a container, service or not, whose spec has no memory_limit. A new value applies to sandboxes accepted ` +
		`from then on.`, memoryOrNone},
	{"runtime.resync_interval", false, `How often agboxd compares all records with the engine, in addition to the engine's events.`, bounded(time.Second, time.Hour, "")},
	{"runtime.workers", false, `How many sandboxes, and how many execs, are reconciled at the same time.`, bounded(1, 64, "")},
	{"runtime.orphan_sweep", true, `Leftovers of deleted sandboxes: "remove" removes them, "dry-run" only reports them.`, oneOf(OrphanSweepRemove, OrphanSweepDryRun)},
	{"runtime.entrypoint", true, `Whether PID 1 runs an image's ENTRYPOINT, in a sandbox whose spec has no entrypoint: "run", "skip", or "auto": where the image ` +
		`has a label for that, or no user agbox. docs/sandbox.md has the details. A new value applies to sandboxes accepted from then on.`,
		oneOf(EntrypointAuto, EntrypointRun, EntrypointSkip)},

	{"runtime.network_mode", true, `What a sandbox reaches whose spec has no network policy: "internet": public addresses; "internal": its own services only; "none": nothing; ` +
		`"open": whatever this host reaches. docs/network.md has the details. A new value applies to sandboxes accepted from then on.`,
		oneOf(NetworkInternet, NetworkInternal, NetworkNone, NetworkOpen)},
	{"runtime.network_required", true, `Where no network policy can be enforced, as with an engine on another host: whether a sandbox without a policy is refused. Otherwise it ` +
		`is accepted with the mode "open", and a warning.`, yesOrNo},
	{"runtime.dns_port", false, `The port, on the bridges of sandboxes whose network policies name domains, at which "agboxd dns" answers their DNS, and verifies the names of connections. Packet filter rules lead there; ` +
		`a firewall of the host has to let it pass.`, bounded(1, 65535, "")},

	{"mounts.allow_system", true, `Whether a sandbox may mount or copy the engine's socket, "/" or a system directory: each gives it root on this ` +
		`host, or nearly so. docs/sandbox.md has the list. agboxd's own directories are refused or covered even so.`, yesOrNo},
	{"mounts.allow", true, `The only directories whose contents may be mounted or copied, also by built-in tools. Empty: no restriction.`, directories},

	{"security.profile", true, `The security profile of a sandbox whose spec has none. A new value applies to sandboxes accepted from then on.`,
		oneOf(ProfileStandard, ProfileHardened)},
	{"security.allow", true, `The settings by which a spec may loosen its profile: capabilities, "seccomp=unconfined" and "no_new_privileges=false". docs/security.md ` +
		`says what they give away. A new value applies to sandboxes accepted from then on. Empty: none.`, privileges},

	{"pause.freeze_duration", true, `How long a PAUSED sandbox keeps its memory. Then its containers are stopped, and it stays PAUSED with its files.`, bounded(time.Second, 0, "forever")},
	{"pause.max_frozen", true, `The most PAUSED sandboxes that keep their memory. Past it those paused longest are stopped, as by freeze_duration.`, bounded(1, 0, "no bound")},
	{"pause.stopped_gc_after", true, `Delete a PAUSED sandbox after its containers have been stopped, by one of the two keys above, for this time.`, bounded(time.Second, 0, "never")},

	{"drain.wait", true, `How long busy agents may finish their work when the daemon drains; then agboxd saves it for them, which takes up to a minute. ` +
		`TimeoutStopSec of the service must be longer than both together.`, bounded(0, longestDrain, "")},
	{"drain.on_sigterm", true, `What SIGTERM does: "park" lets agents save their work and ends them, "detach" ends only the daemon, and agents keep working. ` +
		`"auto": park while an agent is busy, else detach.`, oneOf(OnSigtermAuto, OnSigtermPark, OnSigtermDetach)},

	{"agents.session_limit", true, `The most bytes of the session files of one agent that are kept outside its sandbox, in the data directory. A session with more ` +
		`is not saved. "session_paths: [none]" in an agent's spec turns it off.`, sessionSize},

	{"artifacts.exec_output_root", false, `The directory of the logs of execs, owned by the daemon's user, not a symbolic link, and on no path that another user can lead elsewhere. Empty: exec-logs in the data directory, ` +
		`$XDG_DATA_HOME/agents-sandbox (~/.local/share/agents-sandbox).`, directory},
	{"artifacts.exec_log_max_bytes", true, `The largest size of each of the two logs of an exec, stdout and stderr. A new value applies to execs that start from then on.`, sizeOrNone},
	{"artifacts.sandbox_max_bytes", true, `The most disk space for the logs of all execs of one sandbox and other files that it writes beside them; ` +
		`never more than half of that disk. Past it output is dropped or the exec killed, as on_log_limit says; output of agents is kept. It is measured every ` +
		`two seconds, or every half minute while it is far from used up.`, sizeOrNone},
	{"artifacts.on_log_limit", true, `At exec_log_max_bytes: "drop" further output, with a marker, or "kill" the exec. A sandbox's spec.on_log_limit takes precedence.`,
		oneOf(OnLogLimitDrop, OnLogLimitKill)},

	{"limits.sandboxes_per_caller", true, `The most sandboxes of one caller, in any state until they are deleted. A caller is a user at the socket, a client with a certificate, or the ` +
		`owner of a key of the gateway for E2B's SDKs; root is one too.`, bounded(1, 0, "no limit")},
	{"limits.pending_per_caller", true, `The most sandboxes of one caller that are PENDING: past it a create is refused. Without a limit creates wait until one of runtime.workers ` +
		`is free, so those of one caller delay those of all.`, bounded(1, 0, "no limit")},
	{"limits.execs_per_caller", true, `The most execs of one caller that have not ended. Processes of agents do not count.`, bounded(1, 0, "no limit")},

	{"disk.low_water", true, `The free space below which new sandboxes, execs and prompts are refused, on each of these disks: that of the data directory, of ` +
		`artifacts.exec_output_root, and of the engine if it is local. "0": 5 % of each, at most 512MiB.`, sizeOrAuto},
	{"disk.reserve", false, `The disk space that is reserved for the records, so that stops and deletes work on a full disk: once inside the database, and ` +
		`once as ballast files in the data directory. "0": 1/32 of the disk, from 512KiB to 64MiB.`, sizeOrAuto},

	{"backup.interval", false, `How often agboxd backs up the records, without logs. A restart does not move the next backup.`, bounded(time.Minute, 0, "none")},
	{"backup.dir", false, `The directory of these backups. Empty: backups in the data directory; a directory on another disk is safer.`, directory},
	{"backup.keep", false, `How many of these backups are kept; the oldest are removed.`, bounded(1, 10000, "")},

	{"log.level", true, `The lowest level that is logged.`, levels},
	{"log.format", false, `The form of the daemon's own log.`, oneOf(LogFormatJSON, LogFormatText)},
}

// longestTimeout is 10 years, as in a spec, so that nanoseconds of a deadline fit into an int64.
const longestTimeout = 3653 * 24 * time.Hour

// longestDrain leaves time to save work before the end of a drain after an hour.
const longestDrain = 45 * time.Minute

// Type names the kind of the key's value, for users.
func (k Key) Type() string { return k.rule.kind }

// Value returns the key's value in c as a TOML literal.
func (k Key) Value(c Config) string { return literal(k.field(&c).Interface()) }

// field returns the settable field of c that the key names.
func (k Key) field(c *Config) reflect.Value { return fields(reflect.ValueOf(c).Elem())[k.Name] }

// fields returns all fields of a Config by the names of their keys.
func fields(c reflect.Value) map[string]reflect.Value {
	byName := map[string]reflect.Value{}
	for section, keys := range c.Fields() {
		for key, value := range keys.Fields() {
			byName[section.Tag.Get("toml")+"."+key.Tag.Get("toml")] = value
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
