package dockerx

import (
	"bytes"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func frame(stream byte, text string) string {
	return string([]byte{stream, 0, 0, 0, 0, 0, byte(len(text) >> 8), byte(len(text))}) + text
}

func TestParseLogsRefusesWhatIsNoLog(t *testing.T) {
	whole := frame(1, "2026-01-02T03:04:05.000000006Z out\n") + frame(2, "2026-01-02T03:04:06.000000000Z a b")
	got, err := parseLogs(strings.NewReader(whole))
	if err != nil || len(got) != 2 || got[0].Stderr || !got[1].Stderr || got[0].Time.Nanosecond() != 6 ||
		!bytes.Equal(got[0].Text, []byte("out\n")) || !bytes.Equal(got[1].Text, []byte("a b")) {
		t.Errorf("%v, %v", got, err)
	}
	for name, answer := range map[string]string{
		"a header that is cut off": whole[:len(frame(1, "2026-01-02T03:04:05.000000006Z out\n"))+3],
		"a record that is cut off": whole[:len(whole)-1],
		"a record without a time":  frame(1, "hello\n"),
		"a huge record":            "\x01\x00\x00\x00\xff\xff\xff\xff",
	} {
		if got, err := parseLogs(strings.NewReader(answer)); !errdefs.IsUnavailable(err) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
