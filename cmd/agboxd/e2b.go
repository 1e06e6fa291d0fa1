package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/e2b"
	"github.com/agbox/agbox/internal/server/connlimit"
)

const (
	// e2bHeaderTimeout bounds the time in which a client sends the headers of a request, and e2bIdleTimeout that between two requests.
	e2bHeaderTimeout = 10 * time.Second
	e2bIdleTimeout   = 2 * time.Minute
	e2bHeaderBytes   = 64 << 10
	// e2bMaxReply holds lists of some hundred thousand sandboxes, in bytes.
	e2bMaxReply = 256 << 20
)

// listenE2B opens the listener of the gateway for E2B's SDKs, if the configuration has one.
func (d *daemon) listenE2B() error {
	if d.cfg.E2B.Listen == "" {
		return nil
	}
	cert, err := loadE2BCert(d.cfg.E2B)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", d.cfg.E2B.Listen)
	if err != nil {
		return fmt.Errorf("e2b.listen: %w", err)
	}
	d.e2bCert.Store(cert)
	d.e2b = connlimit.Newest(l, d.files.TCP)
	return nil
}

// loadE2BCert reads the certificate of the gateway; nil if it serves plain HTTP.
func loadE2BCert(c config.E2B) (*tls.Certificate, error) {
	if c.Cert == "" {
		return nil, nil //nolint:nilnil // none is needed
	}
	cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("e2b.cert %s with e2b.key %s: %w", c.Cert, c.Key, err)}
	}
	return &cert, nil
}

// reloadE2BCert reads the certificate again, for connections from then on. If it is wrong, the old one holds. Whether the gateway serves TLS
// changes only at a restart.
func (d *daemon) reloadE2BCert(c config.E2B) {
	if d.e2b == nil {
		return
	}
	old := d.e2bCert.Load()
	if (old == nil) != (c.Cert == "") {
		d.log.Error("the gateway for the SDKs of E2B begins or ends to serve TLS at a restart of agboxd only", "e2b.cert", c.Cert)
		return
	}
	cert, err := loadE2BCert(c)
	if err != nil {
		d.log.Error("the certificate of the gateway for the SDKs of E2B is not reloaded; the old one holds", "err", err)
		return
	}
	d.e2bCert.Store(cert)
}

// gateways returns the addresses of the gateways that are served.
func (d *daemon) gateways() map[string]string {
	if d.e2b == nil {
		return nil
	}
	address := d.e2b.Addr().String()
	if d.e2bCert.Load() != nil {
		address = "https://" + address
	}
	return map[string]string{e2b.Name: address}
}

// serveE2B serves the gateway until ctx ends, and then waits for its requests. The gateway is a client of the daemon's own socket, so it has the same
// checks, limits and audit lines as any other.
func (d *daemon) serveE2B(ctx context.Context) error {
	conn, err := grpc.NewClient("passthrough:///agboxd", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(e2bMaxReply)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.socket.Addr().String())
		}))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is left to be sent
	_, port, _ := net.SplitHostPort(d.e2b.Addr().String())
	g := e2b.New(e2b.Options{
		Conn: conn, Domain: cmp.Or(d.cfg.E2B.Domain, "localhost:"+port), Log: d.log,
		Templates: func() map[string]string { return d.current.Load().E2B.Templates },
		MaxFrozen: func() int { return d.current.Load().Pause.MaxFrozen },
	})
	requests, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	var sampling sync.WaitGroup
	defer sampling.Wait()
	defer cutOff()
	sampling.Go(func() { g.Sample(requests) })
	srv := &http.Server{
		Handler: g, ReadHeaderTimeout: e2bHeaderTimeout, IdleTimeout: e2bIdleTimeout, MaxHeaderBytes: e2bHeaderBytes,
		ErrorLog:    slog.NewLogLogger(d.log.Handler(), slog.LevelWarn),
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	stop := context.AfterFunc(ctx, func() {
		cutOff()
		_ = srv.Close()
	})
	defer stop()
	d.log.Info("agboxd serves the API of E2B", "listen", d.e2b.Addr().String(), "tls", d.e2bCert.Load() != nil)
	if d.e2bCert.Load() == nil {
		err = srv.Serve(d.e2b)
	} else {
		srv.TLSConfig = &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return d.e2bCert.Load(), nil },
		}
		err = srv.ServeTLS(d.e2b, "", "")
	}
	cutOff()
	g.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the API of E2B: %w", err)
}
