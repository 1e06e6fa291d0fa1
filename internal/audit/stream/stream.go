// Package stream writes and verifies self-describing output. A test program writes a stream to its stdout; a reader of the log
// regenerates every byte from the first line, so no log needs a second copy to be compared with.
//
//	agbox-stream 1 <key> <lines>\n
//	<number, 8 digits> <16 hex of FNV-1a over key and number> <filler of 0 to 63 bytes>\n      lines times, numbered from 1
//	end <lines> <64 hex of the SHA-256 of everything before>\n
package stream

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"strings"
)

// Magic begins every stream.
const Magic = "agbox-stream 1 "

// maxLines bounds the lines that a header can request: 8 digits.
const maxLines = 99_999_999

// maxHeader bounds the first line.
const maxHeader = 512

const filler = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// Write writes the stream of key with the given number of lines, one Write call per line. key must not contain white space.
// between is called before each line with its number; may be nil. Errors: those of w and between; a bad key or number of lines.
func Write(w io.Writer, key string, lines int, between func(line int) error) error {
	if key == "" || len(key) > maxHeader/2 || strings.ContainsAny(key, " \t\r\n") || lines < 0 || lines > maxLines {
		return fmt.Errorf("stream %q of %d lines: the key is empty, too long or has white space, or the number is out of range", key, lines)
	}
	g := newGenerator(key, lines)
	for n := 0; ; n++ {
		line, ok := g.next()
		if !ok {
			return nil
		}
		if between != nil && n > 0 && n <= lines {
			if err := between(n); err != nil {
				return err
			}
		}
		if _, err := w.Write(line); err != nil {
			return fmt.Errorf("write line %d: %w", n, err)
		}
	}
}

// generator generates a stream line by line. The slice that next returns is valid until the following call.
type generator struct {
	key      string
	lines, n int
	sum      hash.Hash
	buf      []byte
}

func newGenerator(key string, lines int) *generator {
	return &generator{key: key, lines: lines, n: -1, sum: sha256.New()}
}

func (g *generator) next() (line []byte, ok bool) {
	g.n++
	switch {
	case g.n == 0:
		g.buf = fmt.Appendf(g.buf[:0], "%s%s %d\n", Magic, g.key, g.lines)
	case g.n <= g.lines:
		h := fnv.New64a()
		fmt.Fprintf(h, "%s %d", g.key, g.n) // a hash never fails
		sum := h.Sum64()
		g.buf = fmt.Appendf(g.buf[:0], "%08d %016x %s\n", g.n, sum, filler[:sum%64])
	case g.n == g.lines+1:
		g.buf = fmt.Appendf(g.buf[:0], "end %d %x\n", g.lines, g.sum.Sum(nil))
		return g.buf, true
	default:
		return nil, false
	}
	g.sum.Write(g.buf)
	return g.buf, true
}

// Header parses the key and the number of lines in the first line of a stream; ok is false for anything else.
func Header(first []byte) (key string, lines int, ok bool) {
	line, _, found := bytes.Cut(first, []byte{'\n'})
	rest, isStream := bytes.CutPrefix(line, []byte(Magic))
	if !found || !isStream {
		return "", 0, false
	}
	n, err := fmt.Sscanf(string(rest), "%s %d", &key, &lines)
	return key, lines, n == 2 && err == nil && lines >= 0 && lines <= maxLines
}

// ErrNoStream says that the output does not start with the header of a stream.
var ErrNoStream = errors.New("the output is not a stream")

// Result says how far the output matches the stream of its header.
type Result struct {
	Key   string
	Bytes int64
	// Complete: the whole stream was read.
	Complete bool
	// Rest is the output after the last matching byte, at most 1 KiB of it: empty, or the first difference.
	Rest []byte
}

// Verify compares r with the stream of its first line. It stops at the first difference. Truncated output
// is not a difference: Complete is false then. Errors: ErrNoStream; those of r.
func Verify(r io.Reader) (Result, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	first, err := br.Peek(maxHeader)
	if err != nil && !errors.Is(err, io.EOF) {
		return Result{}, err
	}
	key, lines, ok := Header(first)
	if !ok {
		return Result{}, ErrNoStream
	}
	res := Result{Key: key}
	g := newGenerator(key, lines)
	have := make([]byte, maxHeader)
	for {
		want, more := g.next()
		if !more {
			res.Complete = true
			res.Rest, err = rest(br, nil)
			return res, err
		}
		n, err := io.ReadFull(br, have[:len(want)])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return res, err
		}
		same := common(have[:n], want)
		res.Bytes += int64(same)
		if same < n {
			res.Rest, err = rest(br, bytes.Clone(have[same:n]))
			return res, err
		}
		if n < len(want) {
			return res, nil
		}
	}
}

func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// rest reads the bytes after have, up to 1 KiB in total.
func rest(r io.Reader, have []byte) ([]byte, error) {
	more, err := io.ReadAll(io.LimitReader(r, int64(1024-min(1024, len(have)))))
	return append(have, more...), err
}
