package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// privateRun is agboxd's record of a container whose locks are not visible to the host: its run, as in journals, and its process.
type privateRun struct {
	Run     string `json:"run"`
	Process struct {
		Pid   int    `json:"pid"`
		Start string `json:"start"` // clock ticks since the host's boot
	} `json:"process"`
}

// readPrivateRun returns nil when there is none.
func readPrivateRun(root *os.Root) (*privateRun, error) {
	f, err := openRegular(root, "ctl/exec/private")
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxJournalBytes))
	if err != nil {
		return nil, err
	}
	var r privateRun
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read ctl/exec/private: %w", err)
	}
	return &r, nil
}

// hides reports whether a journal belongs to a live run whose locks are not visible to the host.
func (d *runDir) hides(j journalFile) bool {
	if d == nil || d.private == nil || d.private.Run != j.Run {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.private.Process.Pid))
	if err != nil {
		return false
	}
	// After the name in parentheses: the state, 18 fields, and the start time.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(fields) > 19 && string(fields[0]) != "Z" && string(fields[19]) == d.private.Process.Start
}
