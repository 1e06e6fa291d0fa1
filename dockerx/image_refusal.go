package dockerx

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// refusal is what kept an image from being pulled.
type refusal int

const (
	brokeOff refusal = iota
	badReference
	noTag
	noRepository
	noRepositoryForUs // there is none, or we may not know of it: registries answer the same to both
	noPlatform
	unauthorized
	denied
	tooMany
	unreachable
)

// class is that of the error: see EnsureImage.
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

// refusalOf finds out what err, an engine's answer to a pull, means. The class decides where it says enough; the text
// adds to it, and decides where the engine answers 500 to everything.
//
// 20.10 does: for a registry that wants a password, refuses it, or has no such manifest, just as for one that is down,
// and a create that retries such a pull without end never reports it.
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
	return passing(text)
}

// registryCode finds the registry's answer in the text of an error; brokeOff when it is not there. The words are error
// codes of the distribution protocol in their printed form, and the engine's own for a registry without credentials; each
// must be a whole part between colons, so that "connect: permission denied" is none of them.
func registryCode(text string) refusal {
	if strings.Contains(text, "may require 'docker login'") {
		return noRepositoryForUs
	}
	for part := range strings.SplitSeq(text, ": ") {
		part, _, _ = strings.Cut(part, "\n") // containerd puts the registry's words on a line of their own
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

// missing is what an engine means that says "not found" in words of its own.
func missing(text string) refusal {
	if strings.Contains(text, "denied") || strings.Contains(text, "authorization") {
		return noRepositoryForUs
	}
	return noTag
}

// passing tells apart what trying again may mend. It is for the sentence alone: the class is the same.
func passing(text string) refusal {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case has("toomanyrequests", "Too Many Requests"):
		return tooMany
	case has("dial tcp", "no such host", "proxyconnect", "x509", "TLS handshake", "HTTP response to HTTPS client",
		"i/o timeout", "Client.Timeout", "awaiting headers", "connection re"): // refused, reset
		return unreachable
	default:
		return brokeOff
	}
}

// explain makes of the error of a pull the sentence for the user. What the engine itself did not answer stays as it is.
// ctx is the caller's.
func (p *attempt) explain(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case isContextual(err):
		return fmt.Errorf("not done within %s: the registry %s, or the engine, is slow or hangs; docker.pull_timeout gives it more time: %w",
			p.within, p.registry, errdefs.ErrUnavailable)
	case isUnclear(err):
		return err
	}
	r := refusalOf(err)
	final := errdefs.IsNotFound(r.class()) || errdefs.IsPermissionDenied(r.class())
	if p.notFound != nil && final && r != noPlatform {
		return fmt.Errorf("the registry %s does not give it without credentials, and they can't be read: %w", p.registry, p.notFound)
	}
	text := strings.TrimPrefix(p.found.Redact(err.Error()), "Error response from daemon: ")
	return &classed{err: fmt.Errorf("%s (%s)", p.sentence(r), text), class: r.class()}
}

// sentence says what it was and the way out.
func (p *attempt) sentence(r refusal) string {
	with, login := "", fmt.Sprintf("run %q as the user of agboxd", "docker login "+p.registry)
	if !p.found.Empty() {
		with = " with the credentials from " + p.found.Source
	}
	switch r {
	case badReference:
		return "not an image reference that the engine takes: check the name"
	case noTag:
		return fmt.Sprintf("the registry %s has no such tag: check the tag and the name", p.registry)
	case noRepository:
		return fmt.Sprintf("the registry %s has no such repository: check the name", p.registry)
	case noRepositoryForUs, denied:
		return fmt.Sprintf("the registry %s has no such repository or does not give it to us%s: check the name, or %s", p.registry, with, login)
	case noPlatform:
		return "the registry has the image, but not for the platform of this engine: check the tag"
	case unauthorized:
		return p.sentenceUnauthorized(login)
	case tooMany:
		return fmt.Sprintf("the registry %s wants fewer requests%s: wait, or %s", p.registry, with, login)
	case unreachable:
		return fmt.Sprintf("the engine cannot reach the registry %s: check its name and the network", p.registry)
	default:
		return fmt.Sprintf("the pull from the registry %s broke off", p.registry)
	}
}

func (p *attempt) sentenceUnauthorized(login string) string {
	if p.found.Empty() {
		return fmt.Sprintf("the registry %s wants credentials: %s", p.registry, login)
	}
	return fmt.Sprintf("the registry %s refused the credentials from %s: %s", p.registry, p.found.Source, login)
}
