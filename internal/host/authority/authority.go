// Package authority is the certificate authority of one sandbox. It signs the certificates with which agboxd ends the sandbox's TLS connections to
// add headers to their requests. Only the sandbox trusts it.
package authority

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"sync"
	"time"
)

const (
	// skew is how far the clock of the host may be wrong: certificates are valid from so long before they are made.
	skew = 24 * time.Hour
	// lifetime is how long a certificate for a name is valid. Clients refuse more than 398 days. It is replaced renewal before its end.
	lifetime = 7 * 24 * time.Hour
	renewal  = 2 * 24 * time.Hour
	// maxNames bounds the certificates that are kept.
	maxNames = 256
	// serialBytes is the size of an authority's serial number: less than the 20 bytes that clients take.
	serialBytes = 16
	// maxShown is how much of a sandbox's ID clients show as the issuer, in bytes: a common name has at most 64.
	maxShown = 56
)

// The dates of all authorities: what is derived has none of its own, and hosts' clocks may be wrong.
var (
	first = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)
	last  = time.Date(2049, 12, 31, 0, 0, 0, 0, time.UTC)
)

// Authority signs certificates. Its methods may be called concurrently.
type Authority struct {
	encoded []byte
	pair    tls.Certificate

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// Derive returns the authority of a sandbox. It is a function of a secret of the daemon and of the sandbox's ID, byte for byte, and so needs no storage.
func Derive(secret []byte, sandboxID string) (*Authority, error) {
	key, serial, err := derived(secret, sandboxID)
	if err != nil {
		return nil, fmt.Errorf("derive the authority of %s: %w", sandboxID, err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{Organization: []string{"agbox"}, CommonName: "sandbox " + sandboxID[:min(len(sandboxID), maxShown)]}, SerialNumber: serial,
		NotBefore: first, NotAfter: last, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), repeatable{key})
	if err != nil {
		return nil, fmt.Errorf("sign the authority of %s: %w", sandboxID, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the authority of %s: %w", sandboxID, err)
	}
	return Decode(append(certificate(der), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...))
}

func derived(secret []byte, sandboxID string) (*ecdsa.PrivateKey, *big.Int, error) {
	for i := 0; ; i++ { // one in 2^32 candidates is no key
		b, err := hkdf.Key(sha256.New, secret, nil, fmt.Sprintf("agbox authority %d %s", i, sandboxID), 32+serialBytes)
		if err != nil {
			return nil, nil, err
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), b[:32]); err == nil {
			return key, new(big.Int).SetBytes(b[32:]), nil
		}
	}
}

// repeatable is a key with one signature for each text.
type repeatable struct{ *ecdsa.PrivateKey }

func (r repeatable) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return r.PrivateKey.Sign(nil, digest, opts)
}

// Decode returns the authority that Encode has encoded.
func Decode(encoded []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(encoded, encoded)
	if err != nil {
		return nil, fmt.Errorf("decode an authority: %w", err)
	}
	if !pair.Leaf.IsCA {
		return nil, errors.New("decode an authority: its certificate is not one of an authority")
	}
	return &Authority{encoded: bytes.Clone(encoded), pair: pair, leaves: map[string]*tls.Certificate{}}, nil
}

// Encode returns the certificate and the private key in PEM.
func (a *Authority) Encode() []byte { return bytes.Clone(a.encoded) }

// Certificate returns the certificate in PEM, without the key.
func (a *Authority) Certificate() []byte { return certificate(a.pair.Certificate[0]) }

// For returns a certificate for a DNS name, valid for two days at least. Callers do not change it.
func (a *Authority) For(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if leaf := a.leaves[name]; leaf != nil && !now.Before(leaf.Leaf.NotBefore) && now.Add(renewal).Before(leaf.Leaf.NotAfter) {
		return leaf, nil
	}
	leaf, err := a.issue(name, now)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %q: %w", name, err)
	}
	if len(a.leaves) >= maxNames {
		clear(a.leaves)
	}
	a.leaves[name] = leaf
	return leaf, nil
}

// issue makes a certificate. Its subject has no name: that would be bounded to 64 bytes, and clients read the other ones.
func (a *Authority) issue(name string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject: pkix.Name{Organization: []string{"agbox"}}, DNSNames: []string{name}, NotBefore: now.Add(-skew), NotAfter: now.Add(lifetime),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.pair.Leaf, key.Public(), a.pair.PrivateKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

func certificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
