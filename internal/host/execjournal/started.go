package execjournal

import (
	"encoding/json"
	"errors"
	"io/fs"

	"github.com/agbox/agbox/internal/execid"
)

// StartedName is the file in the log directory by which PID 1, or the supervisor of the main process, reports once per run what came of the
// release: empty if the sandbox has started, otherwise a Start. Like TerminatedName it cannot be the name of an exec's file.
const StartedName = "started"

// Start is what became of one run of a container after its release.
type Start struct {
	Version int `json:"version"`
	// Error is one sentence without secrets: why the main process could not be started, or commands have no user. Empty: the main process, if
	// there is one, was executed, and the user of commands exists.
	Error string `json:"error,omitempty"`
	// Main: the image's ENTRYPOINT has not executed its arguments in time, and is the main process.
	Main bool `json:"main,omitempty"`
	// Warning is one sentence about a sandbox that has started: what became of the image's ENTRYPOINT.
	Warning string `json:"warning,omitempty"`

	// Reported: there is a report of the present or last run.
	Reported bool `json:"-"`
}

// Report records the start of the present run. That of an ordinary start needs no disk block. Errors: I/O; it may be called again.
func Report(logs int, s Start) (err error) {
	var data []byte
	if s != (Start{}) {
		s.Version, s.Error, s.Warning = Version, Sentence(s.Error), Sentence(s.Warning)
		if data, err = Encode(s); err != nil {
			return err
		}
	}
	return Replace(logs, TempName(execid.Main, StartedName), StartedName, data, PrivateMode, false)
}

// Started returns the start of the present or last run. Only a process of the sandbox can forge the report, so a malformed one counts as that of an
// ordinary start. Errors: invalid argument; unavailable.
func (d *Dir) Started(sandboxID string) (s Start, err error) {
	if err := checkSandboxID(sandboxID); err != nil {
		return s, err
	}
	var data []byte
	err = withDir(d.Paths(sandboxID).Logs, func(logs int) (err error) {
		data, err = ReadFile(logs, StartedName, MaxJournalBytes)
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil && !errors.Is(err, ErrMalformed):
		return s, unavailablef("read %s: %w", StartedName, err)
	}
	s.Reported = true
	var said Start
	if json.Unmarshal(data, &said) == nil && said.Version == Version && isSentence(said.Error) && isSentence(said.Warning) {
		s.Version, s.Error, s.Main, s.Warning = said.Version, said.Error, said.Main, said.Warning
	}
	return s, nil
}

func isSentence(s string) bool { return len(s) <= MaxErrorBytes && printable(s) }

// StartWarning returns the warning of the present or last start, or "".
func (d *Dir) StartWarning(sandboxID string) string {
	s, _ := d.Started(sandboxID)
	return s.Warning
}

// EntrypointName is the file in the log directory by which PID 1 records at the first start whether the image had no user agbox, so that
// later starts run its ENTRYPOINT as well: RunsEntrypoint or SkipsEntrypoint.
const EntrypointName = "entrypoint"

// Contents of EntrypointName.
const (
	RunsEntrypoint  = "run\n"
	SkipsEntrypoint = "skip\n"
)

// HoldVerb is the shim's verb that an ENTRYPOINT gets as its arguments: it shows PID 1 that they were executed, and then holds.
const HoldVerb = "hold"
