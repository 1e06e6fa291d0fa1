package e2b

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// isSigned reports whether a request for a file has a signature in place of a token.
func isSigned(r *http.Request) bool { return r.URL.Path == "/files" && r.URL.Query().Has("signature") }

// isAllowed reports whether a request has the token of its sandbox, or for a file a signature made with it.
func isAllowed(r *http.Request, token string) bool {
	return hasToken(r, token) || hasSignature(r, token)
}

func hasToken(r *http.Request, token string) bool {
	return subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Access-Token")), []byte(token)) == 1
}

// hasSignature reports whether a request for a file has a signature made with the token that has not expired.
func hasSignature(r *http.Request, token string) bool {
	query := r.URL.Query()
	operation := map[string]string{http.MethodGet: "read", http.MethodPost: "write"}[r.Method]
	if !isSigned(r) || operation == "" {
		return false
	}
	parts := []string{query.Get("path"), operation, query.Get("username"), token}
	if text := query.Get("signature_expiration"); text != "" {
		if at, err := strconv.ParseInt(text, 10, 64); err != nil || at < time.Now().Unix() {
			return false
		}
		parts = append(parts, text)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, ":")))
	want := "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
	return subtle.ConstantTimeCompare([]byte(query.Get("signature")), []byte(want)) == 1
}

// signer returns the sandbox that a signed URL without a sandbox is for: the one whose token made the signature. Whoever asks needs no key, so
// one search runs at a time. Errors: 401.
func (g *Gateway) signer(ctx context.Context, r *http.Request) (string, error) {
	release, err := g.searches.take(ctx, "")
	if err != nil {
		return "", err
	}
	defer release()
	keys, err := g.api.GatewayKeys(ctx)
	if err != nil {
		return "", err
	}
	seen := map[string]bool{}
	for _, key := range keys {
		if seen[key.GetOwner()] {
			continue
		}
		seen[key.GetOwner()] = true
		all, err := g.api.GatewaySandboxes(ctx, key.GetOwner())
		if err != nil {
			return "", err
		}
		for _, sb := range all {
			token, err := g.token(ctx, sb.GetSandboxId())
			if err != nil {
				return "", err
			}
			if isAllowed(r, token) {
				return sb.GetSandboxId(), nil
			}
		}
	}
	return "", failf(http.StatusUnauthorized, "the signature is that of no sandbox, or has expired")
}
