// Package httpapi serves metrics and the readiness of the daemon over HTTP.
package httpapi

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

// Check is one line of /readyz.
type Check struct {
	Name string
	// Problem makes the daemon unready; Warning does not.
	Problem, Warning string
}

// Handler serves /metrics, /healthz (the process answers) and /readyz (agboxd can do its work, or which check fails).
func Handler(reg *prometheus.Registry, checks func() []Check) http.Handler {
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
func readiness(checks []Check) (string, bool) {
	var b strings.Builder
	ready := true
	for _, c := range checks {
		switch {
		case c.Problem != "":
			ready = false
			fmt.Fprintf(&b, "[-]%s: %s\n", c.Name, c.Problem)
		case c.Warning != "":
			fmt.Fprintf(&b, "[!]%s: %s\n", c.Name, c.Warning)
		default:
			fmt.Fprintf(&b, "[+]%s ok\n", c.Name)
		}
	}
	if ready {
		b.WriteString("ready\n")
	} else {
		b.WriteString("not ready\n")
	}
	return b.String(), ready
}

// retryPause is the pause before the next attempt to listen.
const retryPause = 5 * time.Second

// Serve serves until ctx ends. If the address is in use, it logs an error and retries; this does not prevent the start of agboxd. It
// keeps at most the given number of connections open and closes the oldest one for a new one: every user of the host can connect, and none
// can lock out a scraper.
func Serve(ctx context.Context, addr string, h http.Handler, most int, log *slog.Logger) {
	for ctx.Err() == nil {
		err := serveOnce(ctx, addr, h, most, log)
		if ctx.Err() != nil {
			return
		}
		log.Error("http does not serve; trying again", "listen", addr, "err", err)
		_ = wait.For(ctx, retryPause) // the loop asks again
	}
}

// Bounds of one connection: requests have headers of a few KiB and no body, and scrapers connect every minute or more often.
const (
	HeaderTimeout  = 5 * time.Second
	ReadTimeout    = 10 * time.Second
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
		Handler: h, ReadHeaderTimeout: HeaderTimeout, ReadTimeout: ReadTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // an interrupted scrape loses no data
	defer stop()
	if err := srv.Serve(connlimit.Oldest(l, most)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
