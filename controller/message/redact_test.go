package message

import "testing"

func TestRedact(t *testing.T) {
	service := map[string]string{"PASSWORD": "s3cret", "LONGER": "s3cret-and-more", "SHORT": "a"}
	got := Redact("a login with s3cret failed, s3cret-and-more too, as did tok3n", service, map[string]string{"TOKEN": "tok3n"})
	if want := "a login with [redacted] failed, [redacted] too, as did [redacted]"; got != want {
		t.Errorf("got %q", got)
	}
}

func TestRedactTruncatedSecrets(t *testing.T) {
	env := map[string]string{"KEY": "first\r\nsecond", "TOKEN": "0123456789"}
	for text, want := range map[string]string{
		"456789 is no token":               "[redacted] is no token", // the end of more
		"789 is no token":                  "789 is no token",
		Printable([]byte(env["KEY"])):      "[redacted]", // the carriage return is not printed
		"a key of\nfirst\nsecond\nin full": "a key of\n[redacted]\nin full",
	} {
		if got := Redact(text, env); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
