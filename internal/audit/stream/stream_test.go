package stream

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func written(t testing.TB, key string, lines int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, key, lines, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCompleteStream(t *testing.T) {
	for _, lines := range []int{0, 1, 1000} {
		data := written(t, "k", lines)
		got, err := Verify(bytes.NewReader(data))
		if err != nil || !got.Complete || got.Bytes != int64(len(data)) || len(got.Rest) != 0 || got.Key != "k" {
			t.Errorf("%d lines: %+v, %v", lines, got, err)
		}
	}
}

func TestAnyChangeOfAStreamIsDetected(t *testing.T) {
	whole := written(t, "exec-1", 20)
	rapid.Check(t, func(t *rapid.T) {
		data := bytes.Clone(whole)
		at := rapid.IntRange(strings.Index(string(whole), "\n")+1, len(whole)-1).Draw(t, "at")
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0: // one byte changed
			data[at] ^= 1
		case 1: // one byte lost, not the last: that would be a truncation
			at = min(at, len(whole)-2)
			data = append(data[:at], data[at+1:]...)
		case 2: // a repeated chunk
			piece := bytes.Clone(data[:at])
			data = append(data, piece...)
		case 3: // truncated
			got, err := Verify(bytes.NewReader(data[:at]))
			if err != nil || got.Complete || got.Bytes != int64(at) || len(got.Rest) != 0 {
				t.Fatalf("cut at %d: %+v, %v", at, got, err)
			}
			return
		}
		got, err := Verify(bytes.NewReader(data))
		if err != nil || len(got.Rest) == 0 {
			t.Fatalf("a change at %d was not found: %+v, %v", at, got, err)
		}
	})
}

func TestVerifyRejectsOtherOutput(t *testing.T) {
	for _, text := range []string{"", "hello\n", Magic, Magic + "k x\n", Magic + "k -1\n"} {
		if _, err := Verify(strings.NewReader(text)); !errors.Is(err, ErrNoStream) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, key := range []string{"", "a b", strings.Repeat("k", 500)} {
		if err := Write(&bytes.Buffer{}, key, 1, nil); err == nil {
			t.Errorf("key %q was accepted", key)
		}
	}
}
