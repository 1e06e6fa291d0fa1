package cli

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"
)

const (
	// resumableBytes is the size from which a copy of a single file can be continued.
	resumableBytes = 64 << 20
	// copyPatience is how long an interrupted upload of such a file waits for the daemon and the sandbox.
	copyPatience = 30 * time.Second
	// copyProgress is how long a copy is silent.
	copyProgress = time.Second
)

type cpOptions struct {
	user            string
	follow, archive bool
}

func (a *app) cpCommand() *cobra.Command {
	var o cpOptions
	cmd := &cobra.Command{
		Use: "cp (NAME:PATH LOCAL | LOCAL NAME:PATH)", Short: "Copy files and trees into and out of a sandbox", SuggestFor: []string{"copy", "scp"},
		Long: `Copy a file or a tree into or out of a sandbox. Types, modes, times, hard links and extended attributes are kept; the copies belong to the
user who makes them, unless -a is given. The rules are those of "docker cp": a directory is copied into an existing directory, or becomes a
new one; "DIR/." copies its content. A relative PATH is below the home of the user. With "-" as LOCAL, a tar stream is written to standard
output or read from standard input.

A file gets its new content at once. A copy of a single file of 64 MiB or more that was cut off continues where it was, also when the
command is given again; until then it is a file ".NAME.agbox-..." beside the target. Out of a stopped sandbox files are copied as root.
Devices and set-user-ID bits do not leave a sandbox, unless -a is given. What cannot be copied is listed, and the exit code is then 1.`,
		Example: "  agbox cp report.csv web:/workspace/\n  agbox cp web:/var/log ./logs\n  agbox cp src/. web:app\n  agbox cp web:/etc - | tar t",
		Args:    exactly(2, "a source and a target, one of them NAME:PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromSandbox := remote(args[0])
			to, toSandbox := remote(args[1])
			if fromSandbox == toSandbox {
				return usagef(cmd, "expected one of SOURCE and TARGET as NAME:PATH; a local path with a colon is written ./NAME:PATH")
			}
			if fromSandbox {
				return a.copyOut(cmd.Context(), from, args[1], o)
			}
			return a.copyIn(cmd.Context(), args[0], to, o)
		},
	}
	cmd.Flags().StringVarP(&o.user, "user", "u", "", "read or write as this user of the sandbox (default the sandbox's)")
	cmd.Flags().BoolVarP(&o.follow, "follow-link", "L", false, "copy what SOURCE leads to if it is a symbolic link")
	cmd.Flags().BoolVarP(&o.archive, "archive", "a", false, "keep the numeric owners; only root may")
	return cmd
}

// place is a path in a sandbox.
type place struct{ name, path string }

// remote parses NAME:PATH. A path with a slash before the colon is local, as with scp.
func remote(arg string) (place, bool) {
	name, path, ok := strings.Cut(arg, ":")
	if !ok || name == "" || strings.ContainsAny(name, "/.") && !strings.HasPrefix(name, kindSandbox+"/") {
		return place{}, false
	}
	if path == "" {
		path = "."
	}
	return place{name, path}, true
}

// copySource is what is copied.
type copySource struct {
	dir      bool
	base     string
	contents bool // DIR/.
}

// copyTarget is where it goes.
type copyTarget struct {
	path   string
	exists bool
	dir    bool
}

// landing returns the directory and the name under which a source is copied, by the rules of docker cp; "." for the content of the source.
func (s copySource) landing(t copyTarget) (dir, name string, err error) {
	slash := strings.HasSuffix(t.path, "/") || strings.HasSuffix(t.path, "/.")
	trimmed := strings.TrimRight(strings.TrimSuffix(t.path, "/."), "/")
	parent, last := "", trimmed
	if i := strings.LastIndexByte(trimmed, '/'); i >= 0 {
		parent, last = trimmed[:max(i, 1)], trimmed[i+1:]
	}
	if parent == "" {
		parent = "."
	}
	switch {
	case t.dir && s.dir && s.contents:
		return t.path, ".", nil
	case t.dir:
		return t.path, s.base, nil
	case t.exists && s.dir:
		return "", "", fmt.Errorf("cannot copy a directory to %s: it is a file", t.path)
	case t.exists && slash:
		return "", "", fmt.Errorf("%s is not a directory", t.path)
	case !t.exists && slash && !s.dir:
		return "", "", fmt.Errorf("the directory %s does not exist", t.path)
	}
	return parent, last, nil
}

// renamer renames the root of an archive, which is base or ".", to name or ".".
func renamer(base, name string) func(string) (string, bool) {
	return func(entry string) (string, bool) {
		if base == "." {
			return filepath.Join(name, entry), true
		}
		first, rest, _ := strings.Cut(entry, "/")
		if first != base {
			return entry, true
		}
		return filepath.Join(name, rest), true
	}
}

// copying counts what a copy has moved, shows it on a terminal, and lists what it skips.
type copying struct {
	a       *app
	what    string
	bytes   atomic.Int64
	skipped atomic.Int64 // by the end that sends and the one that receives
	stop    func()
}

func (a *app) startCopy(what string) *copying {
	c := &copying{a: a, what: what}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(copyProgress)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				a.notes.show(fmt.Sprintf("%s: %s", what, units.BytesSize(float64(c.bytes.Load()))))
			}
		}
	}()
	c.stop = func() {
		close(done)
		<-ended
		a.notes.clear()
	}
	return c
}

func (c *copying) skip(text string) {
	c.skipped.Add(1)
	c.a.complain(errors.New(text))
}

// outcome is the error of the copy, or of what it skipped.
func (c *copying) outcome(err error) error {
	if err == nil && c.skipped.Load() > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}

func (c *copying) reader(r io.Reader) io.Reader { return counted{r, nil, &c.bytes} }
func (c *copying) writer(w io.Writer) io.Writer { return counted{nil, w, &c.bytes} }

type counted struct {
	r io.Reader
	w io.Writer
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// partName is the name of an unfinished copy. of identifies what is copied.
func partName(final, of string) string {
	i := strings.LastIndexByte(final, '/') + 1
	const most = 200 // bytes of the name; a file system has 255
	base := final[i:]
	return fmt.Sprintf("%s.%s.agbox-%.8x", final[:i], base[:min(len(base), most)], sha256.Sum256([]byte(of)))
}
