package controller

import (
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/execjournal"
)

func TestManyShortLinesAreTakenInByAndBy(t *testing.T) {
	var lines []execjournal.Line
	for range readLines + 10 {
		lines = append(lines, execjournal.Line{Data: []byte("abc")})
	}
	all := int64(4 * len(lines))
	got, next := firstLines(lines, 100, 100+all)
	if len(got) != readLines || next != 100+4*readLines {
		t.Errorf("%d lines up to %d, want %d up to %d", len(got), next, readLines, 100+4*readLines)
	}
	if got, next := firstLines(lines[:5], 7, 27); len(got) != 5 || next != 27 {
		t.Errorf("%d lines up to %d of few", len(got), next)
	}
}

func TestACutLineIsReadAlone(t *testing.T) {
	if readBytes > execjournal.MaxLineBytes {
		t.Error("a read holds a line that was cut and others: their offsets can't be told")
	}
	if len(strings.Repeat("x", execjournal.MaxLineBytes)) != readBytes {
		t.Error("a whole line of the greatest length needs more than one read")
	}
}
