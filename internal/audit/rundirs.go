package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// runDir is the directory with the requests of one sandbox.
type runDir struct {
	// inboxes and outboxes are the sizes of the agents' input and output files, by exec ID.
	inboxes, outboxes map[string]int64
	private           *privateRun // nil: the container's locks are visible to the host
}

// runName is the name of a sandbox's runDir.
func runName(sandboxID string) string {
	sum := sha256.Sum256([]byte(sandboxID))
	return hex.EncodeToString(sum[:8])
}

func readRunDir(path string) (*runDir, error) {
	d := &runDir{}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // opened read-only
	if d.inboxes, err = sizesIn(root, "ctl/exec", ".inbox"); err != nil {
		return nil, err
	}
	if d.outboxes, err = sizesIn(root, "out/agents", ".ndjson", ".words"); err != nil {
		return nil, err
	}
	d.private, err = readPrivateRun(root)
	return d, err
}

// sizesIn returns the sizes of the regular files in dir by name, for names with one of the suffixes, which it strips; of two, the later
// suffix counts. If dir is missing or not a directory, there are none: a sandbox can replace the directory of its outboxes.
func sizesIn(root *os.Root, dir string, suffixes ...string) (map[string]int64, error) {
	sizes := map[string]int64{}
	if info, err := root.Lstat(dir); err != nil || !info.IsDir() {
		return sizes, nil // counts as empty
	}
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return nil, err
	}
	for _, suffix := range suffixes {
		for _, e := range entries {
			id, ok := strings.CutSuffix(e.Name(), suffix)
			if !ok || !e.Type().IsRegular() {
				continue
			}
			if info, err := e.Info(); err == nil {
				sizes[id] = info.Size()
			}
		}
	}
	return sizes, nil
}

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
	data, err := readRegular(root, "ctl/exec/private")
	if gone(err) {
		return nil, nil
	}
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
