package authority_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox/agbox/internal/host/authority"
)

func mustDerive(t *testing.T, sandboxID string) *authority.Authority {
	t.Helper()
	a, err := authority.Derive([]byte("the daemon's secret"), sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mustFor(t *testing.T, a *authority.Authority, name string) *tls.Certificate {
	t.Helper()
	c, err := a.For(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mustTrust verifies a certificate as a client does that trusts the authority.
func mustTrust(t *testing.T, a *authority.Authority, c *tls.Certificate, name string, at time.Time) {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.Certificate()) {
		t.Fatal("no certificate in", string(a.Certificate()))
	}
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: at}); err != nil {
		t.Error(err)
	}
}

var names = []string{"api.github.com", "a_b.example", "localhost", strings.Repeat(strings.Repeat("x", 60)+".", 4) + "example"}

func TestClientsOfTheSandboxTrustItsCertificates(t *testing.T) {
	a := mustDerive(t, "web")
	for _, name := range names {
		c := mustFor(t, a, name)
		for _, skew := range []time.Duration{-23 * time.Hour, 0, 24 * time.Hour} {
			mustTrust(t, a, c, name, time.Now().Add(skew))
		}
		if c.Leaf.VerifyHostname("other.example") == nil {
			t.Errorf("the certificate for %s is one for other.example", name)
		}
		if bits := c.Leaf.SerialNumber.BitLen(); bits < 100 {
			t.Errorf("a serial number of %d bits", bits)
		}
	}
}

func TestAuthoritiesSurviveTheirEncoding(t *testing.T) {
	a := mustDerive(t, "web")
	b, err := authority.Decode(a.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Certificate(), b.Certificate()) || !bytes.Equal(a.Encode(), b.Encode()) {
		t.Error("the decoded authority is another one")
	}
	mustTrust(t, a, mustFor(t, b, "a.example"), "a.example", time.Now())
	if bytes.Contains(a.Certificate(), []byte("PRIVATE")) {
		t.Error("the certificate has the key")
	}
	block, rest := pem.Decode(a.Encode())
	key, _ := pem.Decode(rest)
	if block.Type != "CERTIFICATE" || key == nil || key.Type != "PRIVATE KEY" {
		t.Errorf("encoded as\n%s", block.Type)
	}
}

func TestWhatIsNoAuthorityIsNotDecoded(t *testing.T) {
	a := mustDerive(t, "web")
	_, key := pem.Decode(mustDerive(t, "other").Encode())
	leaf := mustFor(t, a, "a.example")
	private, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for what, encoded := range map[string][]byte{
		"nothing": nil, "text": []byte("hello"), "without a key": a.Certificate(), "with the key of another one": append(a.Certificate(), key...),
		"a certificate of a name": append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}),
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...),
	} {
		if _, err := authority.Decode(encoded); err == nil {
			t.Errorf("%s is an authority", what)
		}
	}
}

func TestCertificatesAreKeptUntilTheyAreNearTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := mustDerive(t, "web")
		first := mustFor(t, a, "a.example")
		if mustFor(t, a, "a.example") != first {
			t.Error("a certificate is made again")
		}
		time.Sleep(6 * 24 * time.Hour)
		second := mustFor(t, a, "a.example")
		if second == first {
			t.Error("a certificate near its end is not renewed")
		}
		mustTrust(t, a, second, "a.example", time.Now().Add(48*time.Hour))
		for i := range 300 {
			mustFor(t, a, fmt.Sprintf("%d.example", i))
		}
		if mustFor(t, a, "a.example") == second {
			t.Error("certificates are kept without a bound")
		}
	})
}

func TestManyConnectionsAskAtOnce(t *testing.T) {
	a := mustDerive(t, "web")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, err := a.For(fmt.Sprintf("%d.example", i%5)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestOpenSSLVerifiesStrictly(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	a, dir := mustDerive(t, strings.Repeat("x", 100)), t.TempDir()
	write := func(name string, b []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := write("ca.pem", a.Certificate())
	for _, name := range names {
		leaf := write("leaf.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: mustFor(t, a, name).Certificate[0]}))
		verify := exec.CommandContext(t.Context(), openssl, "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", name, "-CAfile", ca, leaf)
		if out, err := verify.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// What is derived is the same for ever: programs keep the certificate that they have read.
func TestDerive(t *testing.T) {
	derive := func(secret, id string) *authority.Authority {
		t.Helper()
		a, err := authority.Derive([]byte(strings.Repeat(secret, 32)), id)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := derive("a", "one")
	if !bytes.Equal(a.Encode(), derive("a", "one").Encode()) {
		t.Error("the same authority is another one")
	}
	for _, other := range []*authority.Authority{derive("b", "one"), derive("a", "two")} {
		if bytes.Equal(a.Encode(), other.Encode()) || bytes.Equal(a.Certificate(), other.Certificate()) {
			t.Error("two authorities are one")
		}
	}
	const want = "6426dbbfe21930f95b9789f76485bcd8feaaad91ea8ab5fd37da58ca2d9a6736"
	if got := fmt.Sprintf("%x", sha256.Sum256(a.Encode())); got != want {
		t.Errorf("another release derives another one: %s", got)
	}
}
