package main

import (
	"fmt"
	"net"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/server/connlimit"
	"github.com/agbox/agbox/internal/server/mtls"
)

// loadIdentity reads the files of a TCP listener; nil if there is none.
func loadIdentity(c config.TCP) (*mtls.Identity, error) {
	if c.Listen == "" {
		return nil, nil //nolint:nilnil // none is needed
	}
	i, err := mtls.Load(mtls.Files{Cert: c.Cert, Key: c.Key, ClientCA: c.ClientCA, Clients: c.Clients})
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("tcp.listen %s: %w", c.Listen, err)}
	}
	return i, nil
}

// listenTCP opens the TCP listener, if the configuration has one. Its connections have a bound of their own, which counts only clients that
// have shown their certificate.
func (d *daemon) listenTCP() error {
	identity, err := loadIdentity(d.cfg.TCP)
	if err != nil || identity == nil {
		return err
	}
	raw, err := net.Listen("tcp", d.cfg.TCP.Listen)
	if err != nil {
		return fmt.Errorf("tcp.listen: %w", err)
	}
	d.identity.Store(identity)
	d.tls = mtls.New(raw, d.files.Handshakes, identity, d.log)
	d.tcp = connlimit.Newest(d.tls, d.files.TCP)
	return nil
}

// reloadIdentity reads the files again. If one is wrong, the old ones hold.
func (d *daemon) reloadIdentity(c config.TCP) {
	if d.tls == nil {
		return
	}
	c.Listen = d.cfg.TCP.Listen
	identity, err := loadIdentity(c)
	if err != nil {
		d.log.Error("the TLS certificates are not reloaded; the old ones hold", "err", err)
		return
	}
	d.identity.Store(identity)
	d.tls.Reload(identity)
	d.log.Info("the TLS certificates are reloaded", "expires", identity.NotAfter())
}

// closeIf closes a listener, if there is one.
func closeIf(l *mtls.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}
