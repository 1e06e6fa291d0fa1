package execjournal

// Version is the version of all three files. Readers refuse a higher one.
const Version = 1

// Where the directories are mounted in every primary container.
const (
	ContainerShim = "/run/agbox/bin/agbox-shim"
	ContainerCtl  = "/run/agbox/ctl"
	ContainerOut  = "/run/agbox/out"
	ContainerLogs = "/var/log/agents-sandbox"
)

// Bounds of what is read. A Request carries at most what one RPC can, times six for JSON's escapes.
const (
	MaxRequestBytes = 32 << 20
	MaxJournalBytes = 64 << 10
	// MaxErrorBytes bounds Journal.Error, so that an end always fits the block that was reserved for it.
	MaxErrorBytes = 512
)

// States of a Journal.
const (
	// StateStarted: the command runs, was about to run, or died with its supervisor; the lock tells.
	StateStarted = "started"
	// StateEnded: the result is final.
	StateEnded = "ended"
	// StateClosed: the daemon closed the exec before it began; it never ran and never will.
	StateClosed = "closed"
)

// ErrorStartFailed is the Journal.ErrorCode of a command that could not be started.
const ErrorStartFailed = "EXEC_START_FAILED"

// Request asks the shim to run one exec. It holds secrets (Env); its file is readable by root only.
type Request struct {
	Version int    `json:"version"`
	ExecID  string `json:"exec_id"`
	// Nonce ties request, cancel and journal to one record of the daemon: 16 to 128 of [0-9A-Za-z_-].
	Nonce string `json:"nonce"`
	// Command is program and arguments. The program is looked up in the PATH of the resulting environment.
	Command []string `json:"command"`
	// Cwd is absolute; empty means the working directory of the container.
	Cwd string `json:"cwd,omitempty"`
	// Env is laid over the environment of the container's PID 1.
	Env map[string]string `json:"env,omitempty"`
	// User is "name", "uid", "name:group" or "uid:gid"; empty means agbox where the image has it, else the image's own
	// user, else root.
	User string `json:"user,omitempty"`
	// LogLimitBytes bounds each of the two logs; 0 means no limit. The byte after the limit ends the exec.
	LogLimitBytes int64 `json:"log_limit_bytes,omitempty"`
	// CancelGraceMillis is the time between TERM and KILL; 0 to one hour.
	CancelGraceMillis int64 `json:"cancel_grace_ms"`
}

// Cancel asks the shim to end one exec.
type Cancel struct {
	Version int    `json:"version"`
	Nonce   string `json:"nonce"`
}

// Journal is what is known for ever about one exec. All times are Unix nanoseconds by the host's clock.
type Journal struct {
	Version int    `json:"version"`
	ExecID  string `json:"exec_id"`
	Nonce   string `json:"nonce"`
	// BootID is the kernel's, as the writer saw it. Information only.
	BootID string `json:"boot_id,omitempty"`
	State  string `json:"state"`
	// StartedAtNanos is 0 in an end whose command never ran.
	StartedAtNanos int64 `json:"started_at_ns,omitempty"`
	EndedAtNanos   int64 `json:"ended_at_ns,omitempty"`
	// ExitCode is 0 to 255; 128 + Signal when a signal ended the command.
	ExitCode int `json:"exit_code"`
	// Signal is 0 to 64.
	Signal int `json:"signal,omitempty"`
	// OOM: the kernel's OOM killer ended the command.
	OOM bool `json:"oom,omitempty"`
	// Cancelled: the end came from a Cancel. Nothing of the process tree is left.
	Cancelled bool `json:"cancelled,omitempty"`
	// Stopped: the end came from the stop of the container. Nothing of the process tree is left.
	Stopped bool `json:"stopped,omitempty"`
	// LogLimit: a log reached its limit; the bytes up to it are kept.
	LogLimit bool `json:"log_limit,omitempty"`
	// LogLost: the disk stayed full until the exec was cancelled or stopped; the last bytes of its output are missing.
	LogLost bool `json:"log_lost,omitempty"`
	// ErrorCode is empty or ErrorStartFailed.
	ErrorCode string `json:"error_code,omitempty"`
	// Error is one sentence without secrets: why the command could not start, or why the exec was closed.
	Error string `json:"error,omitempty"`
	// StdoutBytes and StderrBytes are what the logs held when the command ended; children that outlive it may add more.
	StdoutBytes int64 `json:"stdout_bytes,omitempty"`
	StderrBytes int64 `json:"stderr_bytes,omitempty"`
}

// Names of the files of one exec. No name is another exec's: an exec ID has no leading dot, and no suffix ends another.

// RequestName is the file of the Request in ctl/exec.
func RequestName(execID string) string { return execID + requestSuffix }

// CancelName is the file of the Cancel in ctl/exec.
func CancelName(execID string) string { return execID + cancelSuffix }

// JournalName is the file of the Journal in the log directory.
func JournalName(execID string) string { return execID + journalSuffix }

// LockName is the lock file in the log directory.
func LockName(execID string) string { return execID + ".lock" }

// LostName is the bell in the log directory that says that the lock was given up without an end.
func LostName(execID string) string { return execID + lostSuffix }

// StdoutName is the log of standard output.
func StdoutName(execID string) string { return execID + ".stdout.log" }

// StderrName is the log of standard error.
func StderrName(execID string) string { return execID + ".stderr.log" }

// TempName is a temporary file of one exec; what keeps two writers apart.
func TempName(execID, what string) string { return "." + execID + "." + what + ".tmp" }

const (
	requestSuffix = ".json"
	cancelSuffix  = ".cancel"
	journalSuffix = ".journal"
	lostSuffix    = ".lost"
	// ExecDir is the directory of requests and cancels inside ctl.
	ExecDir = "exec"
)
