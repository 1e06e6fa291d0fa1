package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/agbox/agbox/internal/wait"
)

// mode is how the proxy changes answers for some time.
type mode string

// The modes. In all modes except honest and hide, each request is affected with a probability, so that passes get far enough to be
// interrupted in the middle.
const (
	honest     mode = "honest"
	delay      mode = "delay"       // requests and answers are delayed
	dropBefore mode = "drop-before" // the engine never receives the request
	dropAfter  mode = "drop-after"  // the engine handles the request, and the answer is lost
	truncate   mode = "truncate"    // the answer ends in the middle
	empty      mode = "empty"       // a list is []
	stale      mode = "stale"       // a list is answered with an earlier answer
	repeat     mode = "repeat"      // the engine receives a request twice; the daemon receives events twice
	reorder    mode = "reorder"     // events arrive in another order
	// hide omits objects from every list and answers 404 to every inspection of them, by ID and by name, until the mode changes.
	hide mode = "hide"
)

// lies lists the modes that affect some requests for a short time. hide is used separately: see (*storm).lie.
var lies = []mode{delay, dropBefore, dropAfter, truncate, empty, stale, repeat, reorder}

const (
	hitRate     = 0.4
	maxDelay    = 3 * time.Second
	maxBuffered = 8 << 20
)

// engineSocket returns the socket of the engine that the storm runs on: that of DOCKER_HOST, which docker commands use as well.
func engineSocket() (string, error) {
	host := cmp.Or(os.Getenv("DOCKER_HOST"), "unix:///var/run/docker.sock")
	path, isUnix := strings.CutPrefix(host, "unix://")
	if !isUnix {
		return "", fmt.Errorf("DOCKER_HOST is %s; the storm needs an engine on a unix socket of this host", host)
	}
	return path, nil
}

// proxy is the proxy between the daemon and the engine, on its own unix socket.
type proxy struct {
	server *http.Server
	done   chan struct{}
	count  func(string)

	mu     sync.Mutex
	mode   mode
	victim string // the sandbox whose objects hide omits; empty: all sandboxes
	rng    *rand.Rand
	old    map[string][]byte // earlier answers to lists, by path and query
}

// newProxy starts a proxy on the socket path, in front of the engine on the socket engine.
func newProxy(path, engine string, seed uint64, count func(string)) (*proxy, error) {
	p := &proxy{count: count, mode: honest, rng: rand.New(rand.NewPCG(seed, 1)), old: map[string][]byte{}, done: make(chan struct{})}
	var d net.Dialer
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", engine) },
	}
	rp := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "engine"})
	rp.Transport = &lossy{p, transport}
	rp.FlushInterval = -1
	rp.ErrorLog = discard
	rp.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) } // no answer, only a close
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	p.server = &http.Server{Handler: rp, ReadHeaderTimeout: time.Minute, ErrorLog: discard}
	go func() { defer close(p.done); _ = p.server.Serve(l) }() // returns after Close
	return p, nil
}

func (p *proxy) close() {
	_ = p.server.Close()
	<-p.done
}

func (p *proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.victim = m, ""
}

// hide hides every container and every network of a sandbox, or of all sandboxes if victim is empty, until the next call of set or hide.
func (p *proxy) hide(victim string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.victim = hide, victim
}

// hit returns the mode if it applies to this request. hide applies to all requests.
func (p *proxy) hit() (mode, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == hide {
		return hide, 0
	}
	if p.mode == honest || p.rng.Float64() > hitRate {
		return honest, 0
	}
	return p.mode, time.Duration(p.rng.Int64N(int64(maxDelay)))
}

// lossy is the transport to the engine.
type lossy struct {
	p    *proxy
	next http.RoundTripper
}

var errDropped = errors.New("dropped by the storm")

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	m, delayFor := l.p.hit()
	if strings.HasSuffix(r.URL.Path, "/events") {
		return l.events(r)
	}
	if m == dropBefore {
		l.p.count("proxy " + string(m))
		return nil, errDropped
	}
	if m == repeat {
		if again, ok := copyRequest(r); ok {
			l.p.count("proxy " + string(m))
			if first, err := l.next.RoundTrip(again); err == nil {
				first.Body.Close()
			}
		}
	}
	if m == delay && wait.For(r.Context(), delayFor) != nil {
		return nil, r.Context().Err()
	}
	resp, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return l.answer(r, resp, m)
}

// answer changes the engine's answer. It cannot make an answer empty or stale that is not a list or is upgraded to a stream.
func (l *lossy) answer(r *http.Request, resp *http.Response, m mode) (*http.Response, error) {
	list := isList(r) && resp.StatusCode == http.StatusOK
	switch {
	case m == hide:
		return l.without(r, resp)
	case m == dropAfter:
		l.p.count("proxy " + string(m))
		resp.Body.Close()
		return nil, errDropped
	case resp.StatusCode == http.StatusSwitchingProtocols || !list && m != truncate:
		if m == delay {
			l.p.count("proxy " + string(m))
		}
		return resp, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBuffered))
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	key := r.URL.Path + "?" + r.URL.RawQuery
	l.p.mu.Lock()
	before := l.p.old[key]
	if list && l.p.mode != stale {
		l.p.old[key] = body
	}
	l.p.mu.Unlock()
	switch {
	case m == truncate && len(body) > 1:
		l.p.count("proxy " + string(m))
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), broken{}))
		return resp, nil
	case m == empty && list:
		l.p.count("proxy " + string(m))
		body = []byte("[]\n")
	case m == stale && list && before != nil:
		l.p.count("proxy " + string(m))
		body = before
	}
	return withBody(resp, body), nil
}

func withBody(resp *http.Response, body []byte) *http.Response {
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	resp.Header.Set("Content-Length", fmt.Sprint(len(body)))
	return resp
}

func isList(r *http.Request) bool {
	return r.Method == http.MethodGet && (strings.HasSuffix(r.URL.Path, "/containers/json") || strings.HasSuffix(r.URL.Path, "/networks"))
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// copyRequest returns a copy of a small request. Streams and hijacked connections are not repeated.
func copyRequest(r *http.Request) (*http.Request, bool) {
	if r.Method == http.MethodGet || r.Header.Get("Upgrade") != "" || r.ContentLength < 0 || r.ContentLength > 1<<20 {
		return nil, false
	}
	c := r.Clone(r.Context())
	if r.Body == nil || r.ContentLength == 0 {
		return c, true
	}
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	r.Body, c.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
	return c, err == nil
}

// events passes the stream on line by line, and draws for each line whether to change it.
func (l *lossy) events(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	pr, pw := io.Pipe()
	src := resp.Body
	go func() {
		defer src.Close()
		pw.CloseWithError(l.eachEvent(r.Context(), src, pw))
	}()
	resp.Body, resp.ContentLength = pr, -1
	resp.Header.Del("Content-Length")
	return resp, nil
}

func (l *lossy) eachEvent(ctx context.Context, src io.Reader, to io.Writer) error {
	in := bufio.NewReader(src)
	var held []byte
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		out := [][]byte{line}
		m, delayFor := l.p.hit()
		switch m {
		case dropBefore, dropAfter: // the stream ends, so the daemon must list again
			l.p.count("events cut")
			return errDropped
		case delay:
			_ = wait.For(ctx, delayFor)
		case repeat:
			l.p.count("events repeated")
			out = append(out, line)
		case reorder:
			if held == nil { // it is sent after the next line
				l.p.count("events reordered")
				held, out = line, nil
			}
		case honest, truncate, empty, stale, hide:
		}
		if held != nil && out != nil {
			out, held = append(out, held), nil
		}
		for _, b := range out {
			if _, err := to.Write(b); err != nil {
				return err
			}
		}
	}
}
