package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
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
	if d.outboxes, err = sizesIn(root, "out/agents", ".ndjson"); err != nil {
		return nil, err
	}
	words, err := sizesIn(root, "out/agents", ".words")
	if err != nil {
		return nil, err
	}
	maps.Copy(d.outboxes, words)
	d.private, err = readPrivateRun(root)
	return d, err
}

// sizesIn returns the sizes of the regular files in dir by name, for names with the suffix, which it strips. If dir is missing or
// not a directory, there are none: a sandbox can replace the directory of its outboxes.
func sizesIn(root *os.Root, dir, suffix string) (map[string]int64, error) {
	sizes := map[string]int64{}
	if info, err := root.Lstat(dir); err != nil || !info.IsDir() {
		return sizes, nil // counts as empty
	}
	f, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil {
			sizes[id] = info.Size()
		}
	}
	return sizes, nil
}
