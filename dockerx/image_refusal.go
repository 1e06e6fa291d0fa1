package dockerx

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// refusal is the reason why an image was not pulled.
type refusal int

const (
	brokeOff refusal = iota
	badReference
	noTag
	noRepository
	noRepositoryForUs // it does not exist, or is hidden from these credentials: registries answer the same to both
	noPlatform
	unauthorized
	denied
	tooMany
	unreachable
)

// class is the error class of r: see EnsureImage.
func (r refusal) class() error {
	switch r {
	case badReference:
		return errdefs.ErrInvalidArgument
	case noTag, noRepository, noRepositoryForUs, noPlatform:
		return errdefs.ErrNotFound
	case unauthorized, denied:
		return errdefs.ErrPermissionDenied
	default:
		return errdefs.ErrUnavailable
	}
}

// refusalOf classifies err, an engine's response to a pull, by its class where that is specific, and by its text where the
// engine answers 500 to everything.
//
// 20.10 does: for a registry that requires a password, refuses it, or has no such manifest, as for one that is down. A
// create that retried such a pull without end would never report the reason.
func refusalOf(err error) refusal {
	said, text := registryCode(err.Error()), err.Error()
	switch {
	case errdefs.IsInvalidArgument(err):
		return badReference
	case errdefs.IsNotFound(err):
		if errdefs.IsNotFound(said.class()) {
			return said
		}
		return missing(text)
	case errdefs.IsUnauthorized(err):
		return unauthorized
	case errdefs.IsPermissionDenied(err):
		return denied
	case said != brokeOff && (errdefs.IsInternal(err) || errdefs.IsUnknown(err)):
		return said
	}
	return transient(text)
}

// registryCode parses the registry's answer in the text of an error; brokeOff when there is none. It matches error codes of
// the distribution protocol in their printed form, and the engine's own for a registry without credentials; each must be a
// whole part between colons, so that "connect: permission denied" does not match.
func registryCode(text string) refusal {
	if strings.Contains(text, "may require 'docker login'") {
		return noRepositoryForUs
	}
	for part := range strings.SplitSeq(text, ": ") {
		part, _, _ = strings.Cut(part, "\n") // containerd prints the registry's message on a separate line
		switch part {
		case "unauthorized", "no basic auth credentials", "401 Unauthorized":
			return unauthorized
		case "denied", "403 Forbidden":
			return denied
		case "manifest unknown":
			return noTag
		case "name unknown":
			return noRepository
		}
	}
	// A code that the protocol does not know, such as Harbor's NOT_FOUND, is printed as unknown.
	if _, words, ok := strings.Cut(text, "unknown: artifact "); ok && strings.HasSuffix(words, " not found") {
		return noTag
	}
	if strings.Contains(text, "no matching manifest for ") {
		return noPlatform
	}
	return brokeOff
}

// missing classifies a "not found" in the engine's own words.
func missing(text string) refusal {
	if strings.Contains(text, "denied") || strings.Contains(text, "authorization") {
		return noRepositoryForUs
	}
	return noTag
}

// transient classifies errors that a retry may fix. It only chooses the sentence: their class is the same.
func transient(text string) refusal {
	contains := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case contains("toomanyrequests", "Too Many Requests"):
		return tooMany
	case contains("dial tcp", "no such host", "proxyconnect", "x509", "TLS handshake", "HTTP response to HTTPS client",
		"i/o timeout", "Client.Timeout", "awaiting headers", "connection re"): // refused, reset
		return unreachable
	default:
		return brokeOff
	}
}

// explain turns the error of a pull into a sentence for the user. Errors that are not the engine's response stay unchanged.
// ctx is the caller's.
func (p *attempt) explain(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case isContextual(err):
		return fmt.Errorf("not complete within %s: the registry %s or the engine is slow or hangs; increase docker.pull_timeout: %w",
			p.within, p.registry, errdefs.ErrUnavailable)
	case isUnclear(err):
		return err
	}
	r := refusalOf(err)
	final := errdefs.IsNotFound(r.class()) || errdefs.IsPermissionDenied(r.class())
	if p.notFound != nil && final && r != noPlatform {
		return fmt.Errorf("the registry %s requires credentials, and they can't be read: %w", p.registry, p.notFound)
	}
	text := strings.TrimPrefix(p.found.Redact(err.Error()), "Error response from daemon: ")
	return &classed{err: fmt.Errorf("%s (%s)", p.sentence(r), text), class: r.class()}
}

// sentence says what went wrong and what to do.
func (p *attempt) sentence(r refusal) string {
	with, login := "", fmt.Sprintf("run %q as the user of agboxd", "docker login "+p.registry)
	if !p.found.Empty() {
		with = " with the credentials from " + p.found.Source
	}
	switch r {
	case badReference:
		return "the engine rejects the image reference: check the name"
	case noTag:
		return fmt.Sprintf("the registry %s has no such tag: check the tag and the name", p.registry)
	case noRepository:
		return fmt.Sprintf("the registry %s has no such repository: check the name", p.registry)
	case noRepositoryForUs, denied:
		return fmt.Sprintf("the registry %s has no such repository or denies access%s: check the name, or %s", p.registry, with, login)
	case noPlatform:
		return "the registry has the image, but not for the platform of this engine: check the tag"
	case unauthorized:
		return p.sentenceUnauthorized(login)
	case tooMany:
		return fmt.Sprintf("the registry %s limits the rate of requests%s: wait, or %s", p.registry, with, login)
	case unreachable:
		return fmt.Sprintf("the engine cannot reach the registry %s: check its name and the network", p.registry)
	default:
		return fmt.Sprintf("the pull from the registry %s was interrupted", p.registry)
	}
}

func (p *attempt) sentenceUnauthorized(login string) string {
	if p.found.Empty() {
		return fmt.Sprintf("the registry %s requires credentials: %s", p.registry, login)
	}
	return fmt.Sprintf("the registry %s refused the credentials from %s: %s", p.registry, p.found.Source, login)
}
