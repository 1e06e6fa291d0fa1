package sandbox

import "testing"

func TestImageBundle(t *testing.T) {
	const own = "/run/agbox/out/secrets/_authority"
	for _, c := range []struct {
		env  []string
		want string
	}{
		{nil, ""},
		{[]string{"PATH=/bin", "SSL_CERT_FILE=/nix/bundle.crt"}, "/nix/bundle.crt"},
		{[]string{"NIX_SSL_CERT_FILE=/nix/bundle.crt"}, "/nix/bundle.crt"},
		{[]string{"NIX_SSL_CERT_FILE=/nix/b", "SSL_CERT_FILE=/nix/a"}, "/nix/a"},
		{[]string{"SSL_CERT_FILE=", "NIX_SSL_CERT_FILE=relative"}, ""},
		{[]string{"SSL_CERT_FILE=" + own, "NIX_SSL_CERT_FILE=/run/agbox/./out/secrets/_authority"}, ""}, // or it would grow with itself
	} {
		if got := imageBundle(c.env); got != c.want {
			t.Errorf("%q: %q, want %q", c.env, got, c.want)
		}
	}
}
