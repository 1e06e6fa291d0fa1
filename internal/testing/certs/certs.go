// Package certs makes authorities and certificates for tests.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	testing.TB
	// File has its own certificate.
	File string
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	made int64
}

// New returns an authority with files in a directory of the test's.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{TB: t, dir: t.TempDir()}
	a.File = filepath.Join(a.dir, "ca.pem")
	a.key = a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	a.must(err)
	a.cert, err = x509.ParseCertificate(der)
	a.must(err)
	a.write(a.File, "CERTIFICATE", der)
	return a
}

func (a *Authority) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	return key
}

func (a *Authority) write(path, kind string, der []byte) {
	a.Helper()
	a.must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// Server issues a certificate for 127.0.0.1.
func (a *Authority) Server() (cert, key string) {
	a.Helper()
	return a.Issue("agboxd", func(c *x509.Certificate) {
		c.ExtKeyUsage, c.IPAddresses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []net.IP{net.IPv4(127, 0, 0, 1)}
	})
}

// Issue issues a certificate with a common name for a client, valid for an hour, unless one of change alters that. It returns the files.
func (a *Authority) Issue(name string, change ...func(*x509.Certificate)) (cert, key string) {
	a.Helper()
	a.made++
	own := a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1 + a.made), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, fn := range change {
		fn(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &own.PublicKey, a.key)
	a.must(err)
	base := filepath.Join(a.dir, strconv.FormatInt(a.made, 10))
	cert, key = base+".pem", base+".key"
	a.write(cert, "CERTIFICATE", der)
	der, err = x509.MarshalPKCS8PrivateKey(own)
	a.must(err)
	a.write(key, "PRIVATE KEY", der)
	return cert, key
}
