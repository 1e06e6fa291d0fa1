package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// The record files, as internal/recordfile/doc.go describes them: frames of a header of 16 bytes and a payload. Those of sandboxes
// and execs end with a frame of the kind endMark, which has no payload.
const (
	frameHeader   = 16
	maxFrame      = 16 << 20
	agentTrailer  = 4
	maxRecordFile = 1 << 30
	endMark       = "AGBZ"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// runDir is the directory of one sandbox that holds its records and requests.
type runDir struct {
	record   *storev1.SandboxRecord // nil: there is none
	execs    map[string]*storev1.ExecRecord
	problems []string
	// inboxes and outboxes are the sizes of the files through which agents speak, by exec ID.
	inboxes, outboxes map[string]int64
	private           *privateRun // nil: the host sees the locks of the container
}

// runName is the name of a sandbox's runDir.
func runName(sandboxID string) string {
	sum := sha256.Sum256([]byte(sandboxID))
	return hex.EncodeToString(sum[:8])
}

func readRunDir(path string) (*runDir, error) {
	d := &runDir{execs: map[string]*storev1.ExecRecord{}}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
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
	if d.private, err = readPrivateRun(root); err != nil {
		return nil, err
	}
	err = d.frames(filepath.Join(path, "record"), "AGBS", func(p []byte) error {
		d.record = &storev1.SandboxRecord{}
		return proto.Unmarshal(p, d.record)
	})
	if err != nil {
		return nil, err
	}
	err = d.frames(filepath.Join(path, "execs"), "AGBE", func(p []byte) error {
		e := &storev1.ExecRecord{}
		if err := proto.Unmarshal(p, e); err != nil {
			return err
		}
		d.execs[e.GetExecId()] = e
		return nil
	})
	return d, err
}

// sizesIn returns the sizes of the regular files of a directory whose names end in suffix, without it. A directory that is missing,
// or none, has no files: a sandbox can put anything in the place of its outboxes.
func sizesIn(root *os.Root, dir, suffix string) (map[string]int64, error) {
	sizes := map[string]int64{}
	if info, err := root.Lstat(dir); err != nil || !info.IsDir() {
		return sizes, nil // the same as an empty one
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

// frames records torn frames as a problem. A missing file has no frames.
func (d *runDir) frames(path, kind string, fn func(payload []byte) error) error {
	problem, err := eachFrame(path, kind, true, fn)
	if problem != "" {
		d.problems = append(d.problems, filepath.Base(path)+": "+problem)
	}
	return err
}

// eachFrame calls fn with the payload of each frame of a file except the mark at its end, if marked. problem describes
// the first frame that is not whole. Errors: the I/O error.
func eachFrame(path, kind string, marked bool, fn func(payload []byte) error) (problem string, err error) {
	f, err := os.Open(path)
	if gone(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecordFile))
	if err != nil {
		return "", err
	}
	for at := 0; at < len(data); {
		rest := data[at:]
		if len(rest) < frameHeader {
			return fmt.Sprintf("a frame is torn at byte %d", at), nil
		}
		if marked && len(rest) == frameHeader && isEndMark(rest) {
			return "", nil
		}
		n := int(binary.BigEndian.Uint32(rest[8:]))
		if string(rest[:4]) != kind || n > maxFrame || n > len(rest)-frameHeader {
			return fmt.Sprintf("a frame is torn at byte %d", at), nil
		}
		payload := rest[frameHeader : frameHeader+n]
		sum := crc32.Update(crc32.Checksum(rest[:12], castagnoli), castagnoli, payload)
		if sum != binary.BigEndian.Uint32(rest[12:]) {
			return fmt.Sprintf("a frame has a wrong checksum at byte %d", at), nil
		}
		if err := fn(payload); err != nil {
			return fmt.Sprintf("a frame does not decode at byte %d: %v", at, err), nil
		}
		at += frameHeader + n
	}
	if marked {
		return fmt.Sprintf("the mark at its end is missing at byte %d", len(data)), nil
	}
	return "", nil
}

func isEndMark(b []byte) bool {
	return string(b[:4]) == endMark && binary.BigEndian.Uint32(b[8:]) == 0 && binary.BigEndian.Uint32(b[12:]) == crc32.Checksum(b[:12], castagnoli)
}

// agentDoc is the record file of one agent, replayed.
type agentDoc struct {
	id       string
	raw      map[rawKey][]byte
	problems []string
}

// agentDocName is the name of an agent's record file.
func agentDocName(agentID string) string {
	sum := sha256.Sum256([]byte(agentID))
	return hex.EncodeToString(sum[:16])
}

var isAgentDoc = regexp.MustCompile(`^[0-9a-f]{32}$`)

func readAgentDocs(root string) (map[string]agentDoc, error) {
	docs := map[string]agentDoc{}
	entries, err := os.ReadDir(root)
	if gone(err) {
		return docs, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !isAgentDoc.MatchString(e.Name()) {
			continue
		}
		if docs[e.Name()], err = readAgentDoc(filepath.Join(root, e.Name())); err != nil {
			return nil, err
		}
	}
	return docs, nil
}

// readAgentDoc replays the changes. A change of several parts counts when its last part is there.
func readAgentDoc(path string) (agentDoc, error) {
	d := agentDoc{raw: map[rawKey][]byte{}}
	var mark uint64
	var parts []*storev1.AgentChange
	problem, err := eachFrame(path, "AGBA", false, func(p []byte) error {
		if len(p) < agentTrailer || int(binary.BigEndian.Uint32(p[len(p)-agentTrailer:])) != len(p)+frameHeader {
			return fmt.Errorf("a change does not repeat its length")
		}
		c := &storev1.AgentChange{}
		if err := proto.Unmarshal(p[:len(p)-agentTrailer], c); err != nil {
			return err
		}
		if d.id = c.GetAgentId(); len(parts) == 0 && c.GetBefore() != mark && c.GetBefore() != 0 {
			return fmt.Errorf("a change is missing")
		}
		if parts = append(parts, c); c.GetMore() {
			return nil
		}
		if parts[0].GetBefore() == 0 { // all there is
			clear(d.raw)
		}
		for _, part := range parts {
			d.apply(part.GetOps())
		}
		mark, parts = c.GetAfter(), nil
		return nil
	})
	if problem != "" {
		d.problems = append(d.problems, problem)
	}
	return d, err
}

func (d agentDoc) apply(ops []*storev1.AgentOp) {
	for _, o := range ops {
		k := rawKey{o.GetKind(), string(o.GetKey())}
		if o.GetDelete() {
			delete(d.raw, k)
			continue
		}
		d.raw[k] = o.GetValue()
	}
}
