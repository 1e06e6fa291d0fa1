package execjournal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agbox/agbox/internal/execid"
)

// MaxExecID is the length of the longest exec ID.
const MaxExecID = 200

// ValidExecID reports whether id can name the files of an exec: 1 to 200 of [0-9A-Za-z_.-], no leading dot. It accepts more
// than the API, so that internal execs have reserved names; see Internal.
func ValidExecID(id string) bool {
	return len(id) >= 1 && len(id) <= MaxExecID && id[0] != '.' && consistsOf(id, idChars+".")
}

// ValidNonce reports whether n is 16 to 128 of [0-9A-Za-z_-].
func ValidNonce(n string) bool {
	return len(n) >= 16 && len(n) <= 128 && consistsOf(n, idChars)
}

// RequestID parses the name of a file in ctl/exec; ok is false for temporary and unknown files.
func RequestID(name string) (execID string, cancel, ok bool) {
	execID, ok = ownerOf(name, requestSuffix, cancelSuffix)
	return execID, ok && name == CancelName(execID), ok
}

// ownerOf returns the exec that a file with one of these suffixes belongs to.
func ownerOf(name string, suffixes ...string) (execID string, ok bool) {
	for _, suffix := range suffixes {
		if id, ok := strings.CutSuffix(name, suffix); ok && ValidExecID(id) {
			return id, true
		}
	}
	return "", false
}

// Encode returns the content of a file, or a line of one: JSON with a newline.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return b.Bytes(), nil
}

// DecodeRequest decodes a Request for execID. With ErrMalformed the returned value still holds a valid ExecID and Nonce if
// data has them, so that the refusal can be recorded.
func DecodeRequest(data []byte, execID string) (Request, error) {
	var r Request
	if err := json.Unmarshal(data, &r); err != nil {
		return Request{}, fmt.Errorf("%w: request is not JSON of the right types", ErrMalformed)
	}
	if r.ExecID != execID || !ValidNonce(r.Nonce) {
		return Request{}, fmt.Errorf("%w: request has another exec ID or no valid nonce", ErrMalformed)
	}
	if r.Version < 1 || r.Version > StdinVersion {
		return r, unsupported(r.Version)
	}
	if why := r.problem(); why != "" {
		return r, fmt.Errorf("%w: %s", ErrMalformed, why)
	}
	return r, nil
}

// DecodeCancel decodes a Cancel, which may have the form of a Request.
func DecodeCancel(data []byte) (Cancel, error) {
	var c Cancel
	if err := json.Unmarshal(data, &c); err != nil {
		return Cancel{}, fmt.Errorf("%w: cancel is not JSON of the right types", ErrMalformed)
	}
	if c.Version < 1 || c.Version > StdinVersion || !ValidNonce(c.Nonce) {
		return Cancel{}, fmt.Errorf("%w: cancel has no known version or no valid nonce", ErrMalformed)
	}
	return c, nil
}

// DecodeJournal decodes the Journal of execID; any value out of range is ErrMalformed.
func DecodeJournal(data []byte, execID string) (Journal, error) {
	var j Journal
	if err := json.Unmarshal(data, &j); err != nil {
		return Journal{}, fmt.Errorf("%w: journal is not JSON of the right types", ErrMalformed)
	}
	if why := j.problem(execID); why != "" {
		return Journal{}, fmt.Errorf("%w: %s", ErrMalformed, why)
	}
	return j, nil
}

// problem returns the reason why r cannot be run, or "". It includes no value: values may be secrets.
func (r Request) problem() string {
	switch {
	case r.ExecID == execid.Main:
		return "exec ID " + execid.Main + " is the main process's"
	case len(r.Command) == 0 || r.Command[0] == "":
		return "command is empty"
	case slices.ContainsFunc(r.Command, unclean):
		return "an argument holds a NUL byte or is not UTF-8"
	case r.Cwd != "" && (!path.IsAbs(r.Cwd) || unclean(r.Cwd)):
		return "cwd is not an absolute path"
	case len(r.User) > 256 || !printable(r.User):
		return "user is not a name or a number"
	case r.LogLimitBytes < 0 || r.OutboxLimitBytes < 0:
		return "log_limit_bytes is negative"
	case r.LogLimitAction != "" && r.LogLimitAction != LogLimitKill && r.LogLimitAction != LogLimitDrop:
		return "log_limit_action is neither kill nor drop"
	case r.CancelGraceMillis < 0 || r.CancelGraceMillis > 3600_000:
		return "cancel_grace_ms is not within 0 and one hour"
	case r.TimeoutMillis < 0:
		return "timeout_ms is negative"
	case r.Inbox && (r.Stdin || r.Terminal != nil):
		return "an exec has an inbox, or a standard input or a terminal, not both"
	case r.Version < r.version():
		return "an inbox, a timeout, a standard input or a terminal needs a higher version"
	}
	for k, v := range r.Env {
		if k == "" || strings.Contains(k, "=") || unclean(k) || unclean(v) {
			return "env holds an invalid key, or a value with a NUL byte or that is not UTF-8"
		}
	}
	return ""
}

func (j Journal) problem(execID string) string {
	switch {
	case j.Version < 1 || j.Version > Version:
		return fmt.Sprintf("journal version %d is not supported", j.Version)
	case j.ExecID != execID:
		return "journal of another exec"
	case !ValidNonce(j.Nonce):
		return "journal without a valid nonce"
	case j.State != StateStarted && j.State != StateEnded && j.State != StateClosed:
		return "journal in an unknown state"
	case j.StartedAtNanos < 0 || j.EndedAtNanos < 0 || j.StdoutBytes < 0 || j.StderrBytes < 0:
		return "journal with a negative time or size"
	case j.OOMKills < 0 || j.OOMLimitBytes < 0:
		return "journal with a negative number of kills or limit"
	case j.TimeoutMillis < 0:
		return "journal with a negative timeout"
	case j.StdoutDroppedBytes < 0 || j.StderrDroppedBytes < 0:
		return "journal with a negative number of dropped bytes"
	case j.ExitCode < 0 || j.ExitCode > 255 || j.Signal < 0 || j.Signal > 64:
		return "journal with an exit code or signal out of range"
	case j.Signal != 0 && j.ExitCode != 128+j.Signal:
		return "journal whose exit code does not match its signal"
	case len(j.BootID) > 64 || !printable(j.BootID):
		return "journal with an invalid boot ID"
	case len(j.ErrorCode) > 64 || !consistsOf(j.ErrorCode, upper+"_"):
		return "journal with an invalid error code"
	case len(j.Error) > MaxErrorBytes || !printable(j.Error):
		return "journal with an invalid error text"
	}
	return ""
}

// Sentence converts s to a valid Journal.Error: UTF-8 without control characters, at most MaxErrorBytes.
func Sentence(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	for len(s) > MaxErrorBytes {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// Characters of nonces and, with a dot, of exec IDs; characters of error codes, with an underscore.
const (
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	idChars = "0123456789abcdefghijklmnopqrstuvwxyz" + upper + "-_"
)

// consistsOf reports whether s has only characters of chars.
func consistsOf(s, chars string) bool { return strings.Trim(s, chars) == "" }

// unclean reports whether JSON or execve does not preserve s.
func unclean(s string) bool { return !utf8.ValidString(s) || strings.Contains(s, "\x00") }

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
