package cli

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func pulling(image, service, status string, current, total int64) *agboxv1.SandboxEvent {
	return &agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_IMAGE_PULLING,
		Details: &agboxv1.SandboxEvent_ImagePull{ImagePull: &agboxv1.ImagePullDetails{
			Image: image, ServiceName: service, Status: status, CurrentBytes: current, TotalBytes: total,
		}},
	}
}

var pullStory = []*agboxv1.SandboxEvent{
	pulling("db:1", "db", "pulling", 0, 0),
	pulling("db:1", "db", "pulling", 3<<20, 12<<20),
	{EventType: agboxv1.EventType_SANDBOX_SERVICE_READY},
	pulling("db:1", "db", "pulled", 12<<20, 12<<20),
	pulling("web:1", "", "pulled", 0, 0), // its beginning was before our time
	pulling("web:2", "", "pulling", 0, 0),
}

// Without a terminal only starts and ends are printed, in whole lines.
func TestPullsInLines(t *testing.T) {
	var out bytes.Buffer
	p := &pulls{notes: &notes{out: &out}, name: "web"}
	for _, e := range pullStory {
		p.observe(e)
	}
	want := "web: pulling db:1 for service db\nweb: pulled db:1 for service db\nweb: pulled web:1\nweb: pulling web:2\n"
	if out.String() != want || !p.busy() {
		t.Errorf("got %q", out.String())
	}
	p.observe(pulling("web:2", "", "pulled", 0, 0))
	if p.busy() {
		t.Error("still busy")
	}
}

// A wait whose reason changes back and forth says each one once.
func TestNotesDoNotRepeatThemselves(t *testing.T) {
	var out bytes.Buffer
	n := &notes{out: &out}
	for range 3 {
		n.say("retrying: the port is in use")
		n.say("waiting for the sandbox to start")
	}
	n.clear()
	n.say("waiting for the sandbox to start")
	if want := "retrying: the port is in use\nwaiting for the sandbox to start\nwaiting for the sandbox to start\n"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

// On a terminal one line is written over, no longer than the terminal, and taken away in the end.
func TestPullsOnATerminal(t *testing.T) {
	master, terminal := openTerminal(t, 44)
	n := &notes{out: terminal}
	p := &pulls{notes: n, name: "web"}
	for _, e := range pullStory[:2] {
		p.observe(e)
	}
	n.clear()
	n.clear() // nothing to take away any more
	want := []string{
		"web: pulling db:1 for service db", "web: pulling db:1 for service db",
		"web: pulling db:1 for service db 25% (3MiB of 12MiB)"[:42] + "…", "",
	}
	got := readTerminal(t, master, len(want))
	for i, line := range want {
		if got[i] != line {
			t.Errorf("got %q, want %q", got[i], line)
		}
	}
}

// openTerminal makes a terminal of that many columns.
func openTerminal(t *testing.T, columns uint16) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TERM", "xterm")
	return master, terminal
}

// readTerminal returns what stood in the line after each of its n rewrites.
func readTerminal(t *testing.T, master *os.File, n int) []string {
	t.Helper()
	const rewrite = "\r\x1b[K"
	text := ""
	for buf := make([]byte, 4096); strings.Count(text, rewrite) < n; {
		k, err := master.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		text += string(buf[:k])
	}
	return strings.Split(text, rewrite)[1:]
}
