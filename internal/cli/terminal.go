package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

// defaultDetachKeys are those of docker.
const defaultDetachKeys = "ctrl-p,ctrl-q"

// connectInput asks for the standard input and the terminal that the flags name.
func (a *app) connectInput(cmd *cobra.Command, req *agboxv1.CreateExecRequest, o execOptions) error {
	req.LiveOutput = !o.detach
	if o.stdin {
		req.Stdin = &agboxv1.StdinSpec{WhenGone: "eof"}
	}
	if !o.tty {
		return nil
	}
	if in, ok := a.In.(*os.File); o.stdin && (!ok || !term.IsTerminal(int(in.Fd()))) {
		return usagef(cmd, "standard input is not a terminal; leave out -t")
	}
	if _, err := parseKeys(o.keys); err != nil {
		return usagef(cmd, "bad --detach-keys: %v", err)
	}
	size := a.terminalSize()
	req.Terminal = &agboxv1.TerminalSpec{Columns: size.Columns, Rows: size.Rows}
	if o.stdin {
		req.Stdin.WhenGone = "hangup"
	}
	if t := os.Getenv("TERM"); t != "" && req.GetEnvOverrides()["TERM"] == "" {
		if req.EnvOverrides == nil {
			req.EnvOverrides = map[string]string{}
		}
		req.EnvOverrides["TERM"] = t
	}
	return nil
}

// terminalSize is the size of the terminal that this program writes to, zero if it writes to none.
func (a *app) terminalSize() client.Size {
	for _, stream := range []any{termsafe.Unfiltered(a.Out), a.In} {
		if f, ok := stream.(*os.File); ok {
			if columns, rows, err := term.GetSize(int(f.Fd())); err == nil {
				return client.Size{Columns: uint32(columns), Rows: uint32(rows)}
			}
		}
	}
	return client.Size{}
}

// attachedTerminal is what attachInput has changed for the time of an attachment.
type attachedTerminal struct{ restore func() }

// attachInput connects this program's standard input and terminal. restore puts the terminal back as it was.
func (a *app) attachInput(opts *client.AttachOptions, o execOptions) (attachedTerminal, error) {
	t := attachedTerminal{restore: func() {}}
	if o.stdin {
		opts.Stdin = a.In
	}
	if !o.tty {
		return t, nil
	}
	keys, err := parseKeys(o.keys)
	if err != nil {
		return t, err
	}
	opts.Size = a.terminalSize()
	var restores []func()
	if in, ok := a.In.(*os.File); ok && o.stdin && term.IsTerminal(int(in.Fd())) {
		was, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return t, fmt.Errorf("set the terminal to raw mode: %w", err)
		}
		restores = append(restores, func() { _ = term.Restore(int(in.Fd()), was) })
		if len(keys) > 0 {
			leave := make(chan struct{})
			opts.Detach = leave
			opts.Stdin = &keyReader{r: in, keys: keys, leave: sync.OnceFunc(func() { close(leave) })}
		}
	}
	sizes, stop := a.watchSize(o.fromNow)
	opts.Resize = sizes
	restores = append(restores, stop)
	t.restore = sync.OnceFunc(func() {
		for _, f := range restores {
			f()
		}
	})
	return t, nil
}

// watchSize sends the size of the terminal after each change. With redraw it first sends another one, so that the program in the terminal
// draws its screen again.
func (a *app) watchSize(redraw bool) (<-chan client.Size, func()) {
	changes, sizes, gone := make(chan os.Signal, 1), make(chan client.Size), make(chan struct{})
	over := make(chan struct{})
	signal.Notify(changes, syscall.SIGWINCH)
	send := func(size client.Size) bool {
		select {
		case sizes <- size:
			return true
		case <-over:
			return false
		}
	}
	go func() {
		defer close(gone)
		if size := a.terminalSize(); redraw && size.Rows > 1 {
			if !send(client.Size{Columns: size.Columns, Rows: size.Rows - 1}) || !send(size) {
				return
			}
		}
		for {
			select {
			case <-changes:
			case <-over:
				return
			}
			if !send(a.terminalSize()) {
				return
			}
		}
	}()
	return sizes, func() {
		signal.Stop(changes)
		close(over)
		<-gone
	}
}

// parseKeys reads keys such as "ctrl-p,ctrl-q" or "a,ctrl-]". An empty text is no keys.
func parseKeys(text string) (keys []byte, err error) {
	if text == "" {
		return nil, nil
	}
	for _, word := range strings.Split(text, ",") {
		key, ctrl := strings.CutPrefix(word, "ctrl-")
		switch {
		case len(key) != 1:
			return nil, fmt.Errorf("%q is neither a character nor ctrl- and a character", word)
		case !ctrl:
			keys = append(keys, key[0])
		case key[0] >= 'a' && key[0] <= 'z':
			keys = append(keys, key[0]-'a'+1)
		case strings.ContainsRune("@[\\]^_", rune(key[0])):
			keys = append(keys, key[0]-'@')
		default:
			return nil, fmt.Errorf("%q: ctrl- takes a to z, @, [, \\, ], ^ and _", word)
		}
	}
	return keys, nil
}

// keyReader reads a terminal and looks for keys. It holds back keys that may be the start of the sequence.
type keyReader struct {
	r     io.Reader
	keys  []byte
	seen  int    // how many of keys were read last
	out   []byte // read and not returned
	leave func()
	err   error
}

// Read implements io.Reader. After the keys it blocks: the attachment ends.
func (k *keyReader) Read(p []byte) (int, error) {
	for len(k.out) == 0 {
		if k.err != nil {
			return 0, k.err
		}
		buf := make([]byte, max(len(p), 1))
		n, err := k.r.Read(buf)
		k.err = err
		for _, b := range buf[:n] {
			if b == k.keys[k.seen] {
				if k.seen++; k.seen == len(k.keys) {
					k.leave()
					select {}
				}
				continue
			}
			k.out = append(append(k.out, k.keys[:k.seen]...), b)
			k.seen = 0
		}
	}
	n := copy(p, k.out)
	k.out = bytes.Clone(k.out[n:])
	return n, nil
}
