package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/docker/go-units"
	"golang.org/x/term"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/termsafe"
)

// notes writes progress to stderr: on a terminal in one line that is overwritten, elsewhere in separate lines, each once. Safe for
// concurrent use.
type notes struct {
	out io.Writer

	mu    sync.Mutex
	shown bool            // the terminal shows a line
	said  map[string]bool // the texts of say since the last clear; at most maxSaid
}

const maxSaid = 100

// show writes a text on a terminal only.
func (n *notes) show(text string) {
	width := terminalWidth(n.out)
	if width == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintf(n.out, "\r\x1b[K%s", clip(termsafe.Line(text), max(width-1, 1)))
	n.shown = true
}

// say writes a text, also without a terminal.
func (n *notes) say(text string) {
	if terminalWidth(n.out) > 0 {
		n.show(text)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.said[text] {
		return
	}
	if n.said == nil || len(n.said) == maxSaid {
		n.said = map[string]bool{}
	}
	n.said[text] = true
	fmt.Fprintln(n.out, termsafe.Line(text))
}

// clear removes the line, before other output.
func (n *notes) clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shown {
		fmt.Fprint(n.out, "\r\x1b[K")
		n.shown = false
	}
	n.said = nil
}

// terminalWidth returns the columns of a terminal, or 0.
func terminalWidth(w io.Writer) int {
	if !isTerminal(w) || os.Getenv("TERM") == "dumb" {
		return 0
	}
	width, _, err := term.GetSize(int(termsafe.Unfiltered(w).(*os.File).Fd()))
	if err != nil || width <= 0 {
		return 80
	}
	return width
}

// pulls turns IMAGE_PULLING events of one sandbox into notes.
type pulls struct {
	notes *notes
	name  string

	changed chan struct{} // has a value after an event
	current atomic.Value  // the image being pulled, a string; "" or nil for none
}

func (p *pulls) observe(e *agboxv1.SandboxEvent) {
	select {
	case p.changed <- struct{}{}:
	default: // the reader has not seen the previous one yet
	}
	d := e.GetImagePull()
	if d == nil {
		return
	}
	what := pullSubject(d)
	if d.GetStatus() == "pulled" {
		p.current.Store("")
		p.notes.say(fmt.Sprintf("%s: pulled %s", p.name, what))
		return
	}
	if p.current.Swap(what) != what {
		p.notes.say(fmt.Sprintf("%s: pulling %s", p.name, what))
	}
	p.notes.show(fmt.Sprintf("%s: pulling %s%s", p.name, what, pullAmount(d)))
}

// busy reports whether a pull is running.
func (p *pulls) busy() bool {
	what, _ := p.current.Load().(string)
	return what != ""
}

func pullSubject(d *agboxv1.ImagePullDetails) string {
	return d.GetImage() + given(" for service ", d.GetServiceName(), "")
}

// pullAmount is " 45% (12MiB of 27.1MiB)", or empty until the registry has announced a size.
func pullAmount(d *agboxv1.ImagePullDetails) string {
	current, total := d.GetCurrentBytes(), d.GetTotalBytes()
	if total <= 0 {
		return ""
	}
	return fmt.Sprintf(" %d%% (%s of %s)", min(100*current/total, 100), units.BytesSize(float64(current)), units.BytesSize(float64(total)))
}
