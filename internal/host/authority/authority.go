// Package authority is the certificate authority of one sandbox. It signs the certificates with which agboxd ends the sandbox's TLS connections to
// add headers to their requests. Only the sandbox trusts it.
package authority

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// skew is how far the clock of the host may be wrong: certificates are valid from so long before they are made.
	skew = 24 * time.Hour
	// years is how long an authority is valid, which no sandbox outlives.
	years = 10
	// lifetime is how long a certificate for a name is valid. Clients refuse more than 398 days. It is replaced renewal before its end.
	lifetime = 7 * 24 * time.Hour
	renewal  = 2 * 24 * time.Hour
	// maxNames bounds the certificates that are kept.
	maxNames = 256
)

// Authority signs certificates. Its methods may be called concurrently.
type Authority struct {
	encoded []byte
	pair    tls.Certificate

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// New makes an authority that is valid for ten years from now. commonName is what clients show as the issuer, of at most 64 bytes.
func New(commonName string, now time.Time) (*Authority, error) {
	if len(commonName) > 64 { // X.509's bound, which some clients hold
		return nil, fmt.Errorf("make an authority: the name %q has more than 64 bytes", commonName)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{Organization: []string{"agbox"}, CommonName: commonName}, NotBefore: now.Add(-skew), NotAfter: now.AddDate(years, 0, 0),
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, der, err := sign(template, template, nil)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of an authority: %w", err)
	}
	return Decode(append(certificate(der), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...))
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
	key, der, err := sign(&x509.Certificate{
		Subject: pkix.Name{Organization: []string{"agbox"}}, DNSNames: []string{name}, NotBefore: now.Add(-skew), NotAfter: now.Add(lifetime),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.pair.Leaf, a.pair.PrivateKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// sign makes a key and its certificate, with a random serial number, which parent signs, or the new key itself if by is nil.
func sign(template, parent *x509.Certificate, by crypto.PrivateKey) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return key, der, nil
}

func certificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
