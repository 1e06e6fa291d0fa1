package dockerx

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// refusal is a reason why an image was not pulled: the class of the error (see EnsureImage) and the sentence for the user, which
// sentence completes.
type refusal struct {
	class    error
	sentence string
}

var (
	brokeOff     = &refusal{errdefs.ErrUnavailable, "the pull from the registry {registry} was interrupted"}
	badReference = &refusal{errdefs.ErrInvalidArgument, "the engine rejects the image reference: check the name"}
	noTag        = &refusal{errdefs.ErrNotFound, "the registry {registry} has no such tag: check the tag and the name"}
	noRepository = &refusal{errdefs.ErrNotFound, "the registry {registry} has no such repository: check the name"}
	// The repository does not exist, or is hidden from these credentials: registries answer the same to both.
	noRepositoryForUs = &refusal{errdefs.ErrNotFound, orDenied}
	noPlatform        = &refusal{errdefs.ErrNotFound, "the registry has the image, but not for the platform of this engine: check the tag"}
	unauthorized      = &refusal{errdefs.ErrPermissionDenied, "the registry {registry} {refused}: {login}"}
	denied            = &refusal{errdefs.ErrPermissionDenied, orDenied}
	tooMany           = &refusal{errdefs.ErrUnavailable, "the registry {registry} limits the rate of requests{with}: wait, or {login}"}
	unreachable       = &refusal{errdefs.ErrUnavailable, "the engine cannot reach the registry {registry}: check its name and the network"}
)

const orDenied = "the registry {registry} has no such repository or denies access{with}: check the name, or {login}"

// refusalOf classifies err, an engine's response to a pull, by its class where that is specific, and by its text where the
// engine answers 500 to everything.
//
// 20.10 does: for a registry that requires a password, refuses it, or has no such manifest, as for one that is down. A
// create that retried such a pull without end would never report the reason.
func refusalOf(err error) *refusal {
	said, text := registryCode(err.Error()), err.Error()
	switch {
	case errdefs.IsInvalidArgument(err):
		return badReference
	case errdefs.IsNotFound(err) && errdefs.IsNotFound(said.class):
		return said
	case errdefs.IsNotFound(err) && (strings.Contains(text, "denied") || strings.Contains(text, "authorization")): // the engine's own words
		return noRepositoryForUs
	case errdefs.IsNotFound(err):
		return noTag
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
func registryCode(text string) *refusal {
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

// transient classifies errors that a retry may fix. It only chooses the sentence: their class is the same.
func transient(text string) *refusal {
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

// pullError turns the error of a pull into a sentence for the user. Errors that are not the engine's response stay unchanged.
// ctx is the caller's.
func (p *attempt) pullError(ctx context.Context, err error) error {
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
	final := errdefs.IsNotFound(r.class) || errdefs.IsPermissionDenied(r.class)
	if p.notFound != nil && final && r != noPlatform {
		return fmt.Errorf("the registry %s requires credentials, and they can't be read: %w", p.registry, p.notFound)
	}
	text := strings.TrimPrefix(p.found.Redact(err.Error()), "Error response from daemon: ")
	return &classed{err: fmt.Errorf("%s (%s)", p.sentence(r), text), class: r.class}
}

// sentence says what went wrong and what to do.
func (p *attempt) sentence(r *refusal) string {
	with, refused := "", "requires credentials"
	if !p.found.Empty() {
		with, refused = " with the credentials from "+p.found.Source, "refused the credentials from "+p.found.Source
	}
	login := fmt.Sprintf("run %q as the user of agboxd", "docker login "+p.registry)
	return strings.NewReplacer("{registry}", p.registry, "{with}", with, "{refused}", refused, "{login}", login).Replace(r.sentence)
}
