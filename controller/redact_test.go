package controller

import "testing"

func TestRedact(t *testing.T) {
	service := map[string]string{"PASSWORD": "s3cret", "LONGER": "s3cret-and-more", "SHORT": "a"}
	got := redact("a login with s3cret failed, s3cret-and-more too, as did tok3n", service, map[string]string{"TOKEN": "tok3n"})
	if want := "a login with [redacted] failed, [redacted] too, as did [redacted]"; got != want {
		t.Errorf("got %q", got)
	}
}
