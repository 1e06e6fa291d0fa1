package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// stormed returns a proxy in front of an engine that counts its requests, and a client of the proxy.
func stormed(t *testing.T) (p *proxy, get func(method, path string) (string, error), asked *atomic.Int64) {
	t.Helper()
	dir := t.TempDir()
	asked = &atomic.Int64{}
	l, err := net.Listen("unix", filepath.Join(dir, "engine"))
	if err != nil {
		t.Fatal(err)
	}
	engine := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		if !strings.HasSuffix(r.URL.Path, "/events") {
			fmt.Fprintf(w, `[{"Id":"%06d"}]`, n)
			return
		}
		for i := range 100 {
			fmt.Fprintf(w, "%d\n", i)
		}
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = engine.Serve(l) }()
	p, err = newProxy(filepath.Join(dir, "proxy"), filepath.Join(dir, "engine"), 1, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.close(); _ = engine.Close(); <-done })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "proxy"))
	}}}
	return p, func(method, path string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, http.NoBody)
		if err != nil {
			return "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}, asked
}

// TestTheProxyLies: each mode has its effect sometimes but not always; honest never changes an answer.
func TestTheProxyLies(t *testing.T) {
	const tries = 60
	for m, lied := range map[mode]func(body string, err error, n, asked int64) bool{
		honest:     func(body string, err error, n, asked int64) bool { return err != nil || asked != n },
		dropBefore: func(_ string, err error, n, asked int64) bool { return err != nil && asked < n },
		dropAfter:  func(_ string, err error, n, asked int64) bool { return err != nil && asked == n },
		truncate:   func(body string, err error, _, _ int64) bool { return err != nil && body != "" },
		empty:      func(body string, err error, _, _ int64) bool { return err == nil && body == "[]\n" },
		stale:      func(body string, err error, n, _ int64) bool { return err == nil && body == `[{"Id":"000001"}]` },
		repeat:     func(_ string, err error, n, asked int64) bool { return err == nil && asked > n },
	} {
		t.Run(string(m), func(t *testing.T) {
			p, get, asked := stormed(t)
			if _, err := get(http.MethodGet, "/v1/containers/json"); err != nil {
				t.Fatal(err)
			}
			method := http.MethodGet
			if m == repeat {
				method = http.MethodPost
			}
			p.set(m)
			lies := 0
			for n := int64(2); n < tries; n++ {
				body, err := get(method, "/v1/containers/json")
				if lied(body, err, n, asked.Load()) {
					lies++
				}
				asked.Store(n) // separates the count for the next request
			}
			if m == honest && lies > 0 || m != honest && (lies < tries/6 || lies > tries*5/6) {
				t.Errorf("%d lies in %d answers", lies, tries)
			}
		})
	}
}

// TestTheProxyMixesEvents: repeated events arrive twice in a row, reordered events all arrive.
func TestTheProxyMixesEvents(t *testing.T) {
	for _, m := range []mode{honest, repeat, reorder, dropAfter} {
		t.Run(string(m), func(t *testing.T) {
			p, get, _ := stormed(t)
			p.set(m)
			body, err := get(http.MethodGet, "/v1/events")
			seen, inOrder, last := map[string]int{}, true, -1
			for s := bufio.NewScanner(strings.NewReader(body)); s.Scan(); {
				var n int
				_, _ = fmt.Sscan(s.Text(), &n)
				seen[s.Text()]++
				inOrder = inOrder && n >= last
				last = n
			}
			twice := 0
			for _, n := range seen {
				twice += n - 1
			}
			if twice > 0 != (m == repeat) || inOrder == (m == reorder) || m != dropAfter && len(seen) < 99 || m == dropAfter && err == nil {
				t.Errorf("%d different events, %d of them twice, in order: %t, %v", len(seen), twice, inOrder, err)
			}
		})
	}
}
