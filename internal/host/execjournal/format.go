package execjournal

import (
	"fmt"
)

// Version is the version of journals, cancels and plain requests. Readers refuse a higher one.
const Version = 1

// InboxVersion is the version of a Request with an inbox: a shim that supports only Version would run the command without
// standard input, and so must refuse it. See TooOld.
const InboxVersion = 2

// TimeoutVersion is the version of a Request with a timeout, which a shim of InboxVersion would ignore.
const TimeoutVersion = 3

// StdinVersion is the version of a Request with a standard input or a terminal, which a shim of TimeoutVersion would ignore.
const StdinVersion = 4

// Where the directories are mounted in every primary container.
const (
	ContainerShim = "/run/agbox/bin/agbox-shim"
	ContainerCtl  = "/run/agbox/ctl"
	ContainerOut  = "/run/agbox/out"
	ContainerLogs = "/var/log/agents-sandbox"
)

// Bounds of files that are read. A Request is at most as large as one RPC, times six for JSON's escapes.
const (
	MaxRequestBytes = 32 << 20
	MaxJournalBytes = 64 << 10
	// MaxErrorBytes bounds Journal.Error, so that an end always fits into the disk block reserved for it.
	MaxErrorBytes = 512
)

// States of a Journal.
const (
	// StateStarted: the command runs, is about to run, or died with its supervisor; the lock distinguishes these.
	StateStarted = "started"
	// StateEnded: the result is final.
	StateEnded = "ended"
	// StateClosed: the daemon closed the exec before it started; it never ran and never will.
	StateClosed = "closed"
)

// Values of Request.LogLimitAction.
const (
	// LogLimitKill ends the exec; its log holds exactly the bytes up to the limit.
	LogLimitKill = "kill"
	// LogLimitDrop lets the command continue. Output past the limit is read and dropped, and the log ends with one
	// DroppedMarker after the limit.
	LogLimitDrop = "drop"
)

// DroppedMarker ends a log with dropped output: exactly limit bytes of output precede it.
func DroppedMarker(limit int64) string {
	return fmt.Sprintf("\n[agbox: output limit of %d bytes reached; what follows was dropped]\n", limit)
}

// ErrorStartFailed is the Journal.ErrorCode of a command that could not be started.
const ErrorStartFailed = "EXEC_START_FAILED"

// Request asks the shim to run one exec. It holds secrets (Env); its file is readable by root only.
type Request struct {
	Version int    `json:"version"`
	ExecID  string `json:"exec_id"`
	// Nonce ties request, cancel and journal to one record of the daemon: 16 to 128 of [0-9A-Za-z_-].
	Nonce string `json:"nonce"`
	// Command is the program and its arguments. The program is looked up in the PATH of the resulting environment.
	Command []string `json:"command"`
	// Cwd is absolute; empty means the container's working directory.
	Cwd string `json:"cwd,omitempty"`
	// Env is added to the environment of the container's PID 1, and overrides it.
	Env map[string]string `json:"env,omitempty"`
	// User is "name", "uid", "name:group" or "uid:gid"; empty means the user that was configured for the sandbox at init, else
	// agbox where the image has it, else the image's own user, else root.
	User string `json:"user,omitempty"`
	// LogLimitBytes bounds each of the two logs; 0 means no limit.
	LogLimitBytes int64 `json:"log_limit_bytes,omitempty"`
	// LogLimitAction is the action when the limit is exceeded: LogLimitKill, also for empty, or LogLimitDrop.
	LogLimitAction string `json:"log_limit_action,omitempty"`
	// CancelGraceMillis is the time between TERM and KILL; 0 to one hour.
	CancelGraceMillis int64 `json:"cancel_grace_ms"`
	// TimeoutMillis is how long after its start the command is ended, as by a Cancel; 0: never.
	TimeoutMillis int64 `json:"timeout_ms,omitempty"`
	// Inbox: standard input is the exec's inbox, to which the daemon appends, instead of empty; and there is an outbox.
	Inbox bool `json:"inbox,omitempty"`
	// Stdin: clients write standard input through the live channel. It ends with the closed marker of the inbox, too.
	Stdin bool `json:"stdin,omitempty"`
	// Terminal gives the command a terminal; all its output is in the log of stdout.
	Terminal *Terminal `json:"terminal,omitempty"`
	// Live: a reader on the live channel gets all output, also beyond the log limit. Older shims ignore it.
	Live bool `json:"live,omitempty"`
	// BootID is the host's boot in which the daemon dispatched the command, on its own record: in another boot it is never started, and the
	// journal need not be on disk before it starts. Empty: the journal must be. Older shims ignore it, and sync.
	BootID string `json:"boot_id,omitempty"`
	// OutboxLimitBytes bounds the outbox; 0 means no limit. The excess is dropped, regardless of LogLimitAction.
	OutboxLimitBytes int64 `json:"outbox_limit_bytes,omitempty"`
}

// Terminal is the initial size of a terminal; 0 is 80 columns and 24 rows.
type Terminal struct {
	Columns uint32 `json:"columns,omitempty"`
	Rows    uint32 `json:"rows,omitempty"`
}

// version is the lowest version that supports all fields of r but Live.
func (r Request) version() int {
	if r.Stdin || r.Terminal != nil {
		return StdinVersion
	}
	if r.TimeoutMillis != 0 {
		return TimeoutVersion
	}
	if r.Inbox {
		return InboxVersion
	}
	return Version
}

// Cancel asks the shim to stop one exec.
type Cancel struct {
	Version int    `json:"version"`
	Nonce   string `json:"nonce"`
}

// Journal is the permanent record of one exec. All times are Unix nanoseconds by the host's clock.
type Journal struct {
	Version int    `json:"version"`
	ExecID  string `json:"exec_id"`
	Nonce   string `json:"nonce"`
	// BootID is the kernel's, as seen by the writer. For information only.
	BootID string `json:"boot_id,omitempty"`
	// Run distinguishes the runs of a container that proves its runtime; empty in others. Compared only where locks are not visible to the host.
	Run   string `json:"run,omitempty"`
	State string `json:"state"`
	// StartedAtNanos is 0 in an end whose command never ran.
	StartedAtNanos int64 `json:"started_at_ns,omitempty"`
	EndedAtNanos   int64 `json:"ended_at_ns,omitempty"`
	// ExitCode is 0 to 255; 128 + Signal when a signal ended the command.
	ExitCode int `json:"exit_code"`
	// Signal is 0 to 64.
	Signal int `json:"signal,omitempty"`
	// OOM: the kernel's OOM killer ended the command: it died of a KILL that the shim did not send while OOMKills rose.
	OOM bool `json:"oom,omitempty"`
	// OOMKills is how many processes of the container, of any exec, the kernel killed for memory while the command ran.
	OOMKills int64 `json:"oom_kills,omitempty"`
	// OOMLimitBytes is the container's memory limit when the command ended, where OOMKills is not 0; 0: no limit of its own.
	OOMLimitBytes int64 `json:"oom_limit_bytes,omitempty"`
	// Cancelled: the end was caused by a Cancel. No process of the tree is left.
	Cancelled bool `json:"cancelled,omitempty"`
	// Stopped: the end was caused by the stop of the container. No process of the tree is left.
	Stopped bool `json:"stopped,omitempty"`
	// LogLimit: under LogLimitKill, the command exceeded the log limit, whether or not it had to be killed for it. Never set
	// under LogLimitDrop; see the dropped bytes.
	LogLimit bool `json:"log_limit,omitempty"`
	// TimeoutMillis is the timeout of the Request if it ended the command; otherwise 0.
	TimeoutMillis int64 `json:"timeout_ms,omitempty"`
	// LogLost: the disk stayed full until the exec was cancelled or stopped; the last bytes of its output are missing.
	LogLost bool `json:"log_lost,omitempty"`
	// ErrorCode is empty or ErrorStartFailed.
	ErrorCode string `json:"error_code,omitempty"`
	// Error is one sentence without secrets: why the command could not start, or why the exec was closed.
	Error string `json:"error,omitempty"`
	// StdoutBytes and StderrBytes are the sizes of the logs when the command ended, including a DroppedMarker; children that
	// outlive it may add more.
	StdoutBytes int64 `json:"stdout_bytes,omitempty"`
	StderrBytes int64 `json:"stderr_bytes,omitempty"`
	// StdoutDroppedBytes and StderrDroppedBytes are the bytes read past the limit until the command ended. Dropped output of
	// children that outlive it is not counted.
	StdoutDroppedBytes int64 `json:"stdout_dropped_bytes,omitempty"`
	StderrDroppedBytes int64 `json:"stderr_dropped_bytes,omitempty"`
}

// ReleaseName is the file in ctl/exec without which a gated PID 1 starts nothing. The daemon writes it when it has verified
// the container's mounts, and removes it before each start. It is a symbolic link whose text is the host's boot
// ID: some runtimes show commands another one, and such a link needs no block on a full disk. Older daemons wrote an empty file.
const ReleaseName = "release"

// BegunName is the file in ctl/exec that remains from the first Withhold on, and shows that a primary was started, or was about to be.
const BegunName = "begun"

// TerminatedName is the file in the log directory by which PID 1 records that it received a TERM in this run. It cannot be the
// name of an exec's file: those have a suffix.
const TerminatedName = "terminated"

// Names of the files of one exec. No two execs share a name: an exec ID has no leading dot, and no suffix is the end of another suffix.

// RequestName is the file of the Request in ctl/exec.
func RequestName(execID string) string { return execID + requestSuffix }

// CancelName is the file of the Cancel in ctl/exec.
func CancelName(execID string) string { return execID + cancelSuffix }

// JournalName is the file of the Journal in the log directory.
func JournalName(execID string) string { return execID + journalSuffix }

// LockName is the lock file in the log directory.
func LockName(execID string) string { return execID + ".lock" }

// LostName is the marker in the log directory that the lock was released without a recorded end.
func LostName(execID string) string { return execID + lostSuffix }

// StdoutName is the log of standard output.
func StdoutName(execID string) string { return execID + stdoutSuffix }

// StderrName is the log of standard error.
func StderrName(execID string) string { return execID + stderrSuffix }

// TempName is a temporary file of one exec; what distinguishes concurrent writers.
func TempName(execID, what string) string { return "." + execID + "." + what + ".tmp" }

const (
	requestSuffix = ".json"
	cancelSuffix  = ".cancel"
	journalSuffix = ".journal"
	lostSuffix    = ".lost"
	stdoutSuffix  = ".stdout" + logSuffix
	stderrSuffix  = ".stderr" + logSuffix
	logSuffix     = ".log"
	timesSuffix   = ".times"
	// ExecDir is the directory of requests and cancels inside ctl.
	ExecDir = "exec"
)
