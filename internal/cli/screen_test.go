package cli

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/manifest"
	"github.com/agbox/agbox/internal/termsafe"
)

// TestLogsAreShownEscapedOnATerminalOnly prints a log that would set the clipboard and clear the screen.
func TestLogsAreShownEscapedOnATerminalOnly(t *testing.T) {
	const said = "\x1b[31mred\x1b[0m \x1b]52;c;cm0gLXJm\x07\x1b[2J\u009b2J over\rwritten\n"
	show := func(out io.Writer, o logsOptions) {
		t.Helper()
		s := screens{raw: o.raw, mode: termsafe.Plain}
		if _, err := s.before(out).Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
	master, terminal := openTerminal(t, 200)
	raw(t, terminal)
	for name, tc := range map[string]struct {
		o    logsOptions
		want string
	}{
		"escaped": {want: "^[[31mred^[[0m ^[]52;c;cm0gLXJm^G^[[2J\\x9b2J over^Mwritten\n"},
		"--raw":   {logsOptions{raw: true}, said},
	} {
		show(terminal, tc.o)
		if got := readSome(t, master); got != tc.want {
			t.Errorf("%s: the terminal gets %q, want %q", name, got, tc.want)
		}
	}
	var file bytes.Buffer
	if show(&file, logsOptions{}); file.String() != said {
		t.Errorf("a pipe gets %q", file.String())
	}
}

func TestTheOutputOfAnExecKeepsItsColours(t *testing.T) {
	master, terminal := openTerminal(t, 200)
	raw(t, terminal)
	s := screens{mode: termsafe.Live}
	if _, err := s.before(terminal).Write([]byte("\x1b[1;31m10%\r20%\x1b]0;title\x07\n\x1b[4")); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if got, want := readSome(t, master), "\x1b[1;31m10%\r20%^[]0;title^G\n^[[4\x1b[0m"; got != want {
		t.Errorf("the terminal gets %q, want %q", got, want)
	}
}

// TestDocumentsAndEventsCarryNoControlCharacters: a message of a sandbox, as JSON and as YAML, harms no terminal and says the same.
func TestDocumentsAndEventsCarryNoControlCharacters(t *testing.T) {
	const said = "\x1b]0;x\x07 \u009b2J \x7f \u202e"
	sb := &agboxv1.SandboxHandle{ErrorMessage: said, Labels: map[string]string{said: said}}
	for _, output := range []string{"json", "yaml"} {
		var out bytes.Buffer
		a := &app{Streams: Streams{Out: &out}}
		text, err := manifest.JSON(sb)
		if err != nil {
			t.Fatal(err)
		}
		if output == "json" {
			err = a.printJSON(text)
		} else {
			text, err = toYAML(text)
			out.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexFunc(out.String(), harms); i >= 0 {
			t.Errorf("%s has %q", output, out.String()[i:])
		}
	}
	var out bytes.Buffer
	a := &app{Streams: Streams{Out: &out}}
	for _, output := range []string{"json", "text"} {
		out.Reset()
		err := a.eventPrinter(output == "json")(&agboxv1.SandboxEvent{Details: &agboxv1.SandboxEvent_Exec{Exec: &agboxv1.ExecEventDetails{ErrorMessage: said}}})
		if err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexFunc(out.String(), harms); i >= 0 {
			t.Errorf("events as %s: %q", output, out.String()[i:])
		}
	}
}

// harms reports what a terminal interprets, or what hides a part of a text. It is written from Unicode's charts, and knows nothing of termsafe.
func harms(r rune) bool {
	return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0x61c || r == 0xad || r >= 0x200b && r <= 0x200f ||
		r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0xfeff || r >= 0xe0000 && r <= 0xe007f
}

// raw keeps the terminal from changing what is printed.
func raw(t *testing.T, terminal *os.File) {
	t.Helper()
	settings, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	settings.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(int(terminal.Fd()), unix.TCSETS, settings); err != nil {
		t.Fatal(err)
	}
}

// readSome reads what was printed at once.
func readSome(t *testing.T, master *os.File) string {
	t.Helper()
	var text []byte
	buf := make([]byte, 4096)
	for {
		fds := []unix.PollFd{{Fd: int32(master.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int((200 * time.Millisecond).Milliseconds()))
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return string(text)
		}
		k, err := master.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, buf[:k]...)
	}
}
