// Package servicelog is the format of the file with a service's output. Each line of the file is one record, as in the logs of the
// Kubernetes container runtime interface:
//
//	2026-01-02T03:04:05.000000006Z stdout F a whole line
//	2026-01-02T03:04:05.000000007Z stderr P the beginning of a line that the next record of stderr continues
//
// The engine keeps the output of a container until it removes the container. Merge appends the part of it that a file lacks; the last record
// of the file says which part that is, so there is no other state, and a repeated merge appends nothing. Pure.
package servicelog

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// Limit is the largest size of a file in bytes; Merge drops the oldest records.
const Limit = 1 << 20

// Record is one line of output, or a part of a long one.
type Record struct {
	Time   time.Time
	Stderr bool
	// Text is the line with its newline. Without one, the next record of the same stream continues the line.
	Text []byte
}

// encode returns the line of the file for a record.
func (r Record) encode() []byte {
	stream, tag := "stdout", "P"
	if r.Stderr {
		stream = "stderr"
	}
	text, whole := bytes.CutSuffix(r.Text, []byte("\n"))
	if whole {
		tag = "F"
	}
	return fmt.Appendf(nil, "%s %s %s %s\n", r.Time.UTC().Format("2006-01-02T15:04:05.000000000Z07:00"), stream, tag, bytes.ReplaceAll(text, []byte("\n"), []byte(" ")))
}

// Parse returns the records of a file. Lines that are not records are left out: root in the sandbox can write to the file.
func Parse(data []byte) (records []Record) {
	for line := range bytes.Lines(data) {
		fields := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 4)
		if len(fields) < 4 {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, string(fields[0]))
		if err != nil {
			continue
		}
		text := slices.Clone(fields[3])
		if string(fields[2]) == "F" {
			text = append(text, '\n')
		}
		records = append(records, Record{Time: at, Stderr: string(fields[1]) == "stderr", Text: text})
	}
	return records
}

// Merge returns the content of a file after it was brought up to date with kept, which is all output that the engine keeps, the oldest first.
// It is data itself if nothing is new, also if kept was read before data was written.
func Merge(data []byte, kept []Record) []byte {
	lines := make([][]byte, len(kept))
	for i, r := range kept {
		lines[i] = r.encode()
	}
	fresh := After(slices.Collect(bytes.Lines(data)), lines, bytes.Equal)
	if len(fresh) == 0 {
		return data
	}
	return newest(append(slices.Clip(data), bytes.Join(fresh, nil)...), Limit)
}

// After returns the elements of all that follow the last one of seen. They are all of them if it is not there, and none if instead the last of
// all is among seen.
func After[T any](seen, all []T, same func(a, b T) bool) []T {
	if len(seen) == 0 || len(all) == 0 {
		return all
	}
	last := seen[len(seen)-1]
	for i, x := range slices.Backward(all) {
		if same(x, last) {
			return all[i+1:]
		}
	}
	newestOfAll := all[len(all)-1]
	if slices.ContainsFunc(seen, func(x T) bool { return same(x, newestOfAll) }) {
		return nil
	}
	return all
}

// newest returns the last lines of data that have at most limit bytes together.
func newest(data []byte, limit int) []byte {
	if len(data) <= limit {
		return data
	}
	data = data[len(data)-limit-1:]
	_, rest, _ := bytes.Cut(data, []byte("\n"))
	return rest
}
