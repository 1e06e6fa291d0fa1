package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/agbox/agbox/internal/server/connlimit"
	"github.com/agbox/agbox/internal/wait"
)

// check is one line of /readyz.
type check struct {
	name string
	// problem makes the daemon unready; warning does not.
	problem, warning string
}

// httpHandler serves /metrics, /healthz (the process answers) and /readyz (agboxd can do its work, or which check fails).
func httpHandler(reg *prometheus.Registry, checks func() []check) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		body, ready := readiness(checks())
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, body)
	})
	return mux
}

// readiness returns one line per check, in the format of Kubernetes: [+] ok, [!] ok with a warning, [-] failed. It also reports whether no
// check failed.
func readiness(checks []check) (string, bool) {
	var b strings.Builder
	ready := true
	for _, c := range checks {
		switch {
		case c.problem != "":
			ready = false
			fmt.Fprintf(&b, "[-]%s: %s\n", c.name, c.problem)
		case c.warning != "":
			fmt.Fprintf(&b, "[!]%s: %s\n", c.name, c.warning)
		default:
			fmt.Fprintf(&b, "[+]%s ok\n", c.name)
		}
	}
	if ready {
		b.WriteString("ready\n")
	} else {
		b.WriteString("not ready\n")
	}
	return b.String(), ready
}

// httpRetry is the pause before the next attempt to listen.
const httpRetry = 5 * time.Second

// serveHTTP serves until ctx ends. If the address is in use, it logs an error and retries; this does not prevent the start of agboxd. It
// keeps at most the given number of connections open and closes the oldest one for a new one: every user of the host can connect, and none
// can lock out a scraper.
func serveHTTP(ctx context.Context, addr string, h http.Handler, most int, log *slog.Logger) {
	for ctx.Err() == nil {
		err := serveOnce(ctx, addr, h, most, log)
		if ctx.Err() != nil {
			return
		}
		log.Error("http does not serve; trying again", "listen", addr, "err", err)
		_ = wait.For(ctx, httpRetry) // the loop asks again
	}
}

// Bounds of one connection: requests have headers of a few KiB and no body, and scrapers connect every minute or more often.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

func serveOnce(ctx context.Context, addr string, h http.Handler, most int, log *slog.Logger) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	log.Info("http serves", "listen", l.Addr().String())
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // an interrupted scrape loses no data
	defer stop()
	if err := srv.Serve(connlimit.Oldest(l, most)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
