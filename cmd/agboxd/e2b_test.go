package main

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/testing/certs"
)

// TestE2BServesTLS, a reload shows the new certificate, and a file that is wrong leaves the old one.
func TestE2BServesTLS(t *testing.T) {
	old, renewed := certs.New(t), certs.New(t)
	conf := config.E2B{Listen: "127.0.0.2:0", Templates: map[string]string{}}
	conf.Cert, conf.Key = old.Server()
	log := &said{}
	site := newSite(t)
	site.Logger = slog.New(slog.NewJSONHandler(log, nil))
	d, _ := site.serving(func(c *config.Config) { c.E2B = conf })
	d.level = &slog.LevelVar{} // serve sets it
	url, isTLS := strings.CutPrefix(d.gateways()["e2b"], "https://")
	if !isTLS {
		t.Fatal(d.gateways())
	}
	trusts := func(a *certs.Authority) error {
		conf := &tls.Config{RootCAs: pool(t, a.File), ServerName: "127.0.0.1"}
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
		resp, err := c.Get("https://" + url + "/sandboxes")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s %s, %v", resp.Status, text, err)
		}
		return nil
	}
	site.Must(trusts(old))
	if trusts(renewed) == nil {
		t.Error("a client takes a certificate of another authority")
	}
	if resp, err := http.Get("http://" + url + "/sandboxes"); err == nil {
		if resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
			t.Error("plain HTTP is served, too")
		}
	}
	reload := func(cert, key string) {
		cfg := *d.current.Load()
		cfg.E2B.Cert, cfg.E2B.Key = cert, key
		d.apply(cfg)
	}
	cert, key := renewed.Server()
	reload(cert, key)
	site.Must(trusts(renewed))
	site.Must(os.WriteFile(cert, []byte("nonsense"), 0o600))
	for _, bad := range []string{cert, ""} {
		reload(bad, key)
		site.Must(trusts(renewed))
	}
	if !all(log.String(), []string{"the old one holds", cert, "restart of agboxd only"}) {
		t.Error(log.String())
	}
	if _, err := loadE2BCert(config.E2B{Cert: cert, Key: key}); err == nil || !all(err.Error(), []string{"e2b.cert", cert, "e2b.key"}) {
		t.Error(err)
	}
}
