package credentials

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/registry"
)

func named(t *testing.T, ref string) reference.Named {
	t.Helper()
	n, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// configDir returns a directory with a config.json of the given content.
func configDir(t *testing.T, content string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// helper puts a script docker-credential-test on the PATH and returns its name.
func helper(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-test"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return "docker-credential-test"
}

func TestCredentialsOfTheFile(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("joe:p:w"))
	joe := registry.AuthConfig{Username: "joe", Password: "p:w", ServerAddress: "r.example:5000"}
	for _, tc := range []struct {
		name, config, ref string
		want              registry.AuthConfig
	}{
		{"auth", `{"auths":{"r.example:5000":{"auth":"` + auth + `"}}}`, "r.example:5000/a/b:1", joe},
		{"user and password", `{"auths":{"r.example:5000":{"username":"joe","password":"p:w"}}}`, "r.example:5000/a/b:1", joe},
		{"an old key", `{"auths":{"https://r.example:5000/v1/":{"auth":"` + auth + `"}}}`, "r.example:5000/a:1", joe},
		{"identity token", `{"auths":{"r.example:5000":{"identitytoken":"tok"}}}`, "r.example:5000/a:1",
			registry.AuthConfig{IdentityToken: "tok", ServerAddress: "r.example:5000"}},
		{"Docker Hub", `{"auths":{"https://index.docker.io/v1/":{"auth":"` + auth + `"}}}`, "busybox",
			registry.AuthConfig{Username: "joe", Password: "p:w", ServerAddress: dockerHubKey}},
		{"another registry", `{"auths":{"r.example":{"auth":"` + auth + `"}}}`, "r.example:5000/a:1", registry.AuthConfig{}},
		{"an empty entry left by a credential store", `{"auths":{"r.example:5000":{}}}`, "r.example:5000/a:1", registry.AuthConfig{}},
		{"a helper for another registry", `{"auths":{"r.example:5000":{"auth":"` + auth + `"}},"credHelpers":{"x":"no"}}`, "r.example:5000/a:1", joe},
		{"no helper for this one", `{"auths":{"r.example:5000":{"auth":"` + auth + `"}},"credsStore":"no","credHelpers":{"r.example:5000":""}}`, "r.example:5000/a:1", joe},
		{"nothing", `{}`, "r.example:5000/a:1", registry.AuthConfig{}},
		{"an empty file", ``, "r.example:5000/a:1", registry.AuthConfig{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := configDir(t, tc.config)
			got, err := Get(t.Context(), dir, named(t, tc.ref))
			if err != nil || got.Auth != tc.want || got.Empty() != (tc.want == registry.AuthConfig{}) {
				t.Errorf("got %+v, %v; want %+v", got.Auth, err, tc.want)
			}
			if want := filepath.Join(dir, "config.json"); got.Source != want {
				t.Errorf("source %s, want %s", got.Source, want)
			}
		})
	}
}

func TestRedact(t *testing.T) {
	pair := base64.StdEncoding.EncodeToString([]byte("joe:pw"))
	f := Found{Auth: registry.AuthConfig{Username: "joe", Password: "pw", IdentityToken: "tok"}}
	if got := f.Redact("joe, pw, " + pair + ", tok."); got != "joe, [secret], [secret], [secret]." {
		t.Error(got)
	}
	if got := (Found{}).Redact("joe"); got != "joe" {
		t.Error(got)
	}
}

func TestMissingFileIsNotAnError(t *testing.T) {
	got, err := Get(t.Context(), filepath.Join(t.TempDir(), "none"), named(t, "r.example/a"))
	if err != nil || !got.Empty() {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLaterLoginTakesEffect(t *testing.T) {
	dir := configDir(t, `{}`)
	if got, err := Get(t.Context(), dir, named(t, "r.example/a")); err != nil || !got.Empty() {
		t.Fatalf("before: %+v, %v", got, err)
	}
	login := `{"auths":{"r.example":{"username":"joe","password":"pw"}}}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(login), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Get(t.Context(), dir, named(t, "r.example/a")); err != nil || got.Auth.Username != "joe" {
		t.Errorf("after: %+v, %v", got, err)
	}
}

func TestUnreadableFileErrorNamesTheFileWithoutSecrets(t *testing.T) {
	secret := base64.StdEncoding.EncodeToString([]byte("hunter2")) // without a colon: not a valid auth
	for _, content := range []string{
		`{"auths":`, `{"auths":{"r.example":{"auth":"` + secret + `"}}}`, `{"auths":{"r.example":{"auth":"hunter2!"}}}`,
		`{"auths":{"r.example":{"password":["hunter2"]}}}`, `["hunter2"]`, `hunter2`,
	} {
		dir := configDir(t, content)
		_, err := Get(t.Context(), dir, named(t, "r.example/a"))
		wantError(t, err, errdefs.IsPermissionDenied, filepath.Join(dir, "config.json"), "docker login")
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the secret is in %q", err)
		}
	}
}

func wantError(t *testing.T, err error, class func(error) bool, words ...string) {
	t.Helper()
	if !class(err) {
		t.Errorf("got %v, another class", err)
	}
	for _, word := range words {
		if err != nil && !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the secret is in %q", err)
	}
}

func TestCredentialsOfAHelper(t *testing.T) {
	// The helper prints its argument and its input.
	name := helper(t, `read -r key; printf '{"ServerURL":"%s","Username":"%s","Secret":"%s"}' "$key" "$1" "$key"`)
	want := registry.AuthConfig{Username: "get", Password: "r.example:5000", ServerAddress: "r.example:5000"}
	for _, config := range []string{
		`{"credHelpers":{"r.example:5000":"test"},"credsStore":"other"}`,
		`{"credsStore":"test","auths":{"r.example:5000":{"username":"old","password":"old"}}}`,
	} {
		got, err := Get(t.Context(), configDir(t, config), named(t, "r.example:5000/a"))
		if err != nil || got.Auth != want || got.Source != name {
			t.Errorf("%s: got %+v, %v", config, got, err)
		}
	}
	got, err := Get(t.Context(), configDir(t, `{"credsStore":"test"}`), named(t, "busybox"))
	if err != nil || got.Auth.Password != dockerHubKey {
		t.Errorf("Docker Hub: got %+v, %v", got, err)
	}
}

func TestAHelpersIdentityToken(t *testing.T) {
	helper(t, `echo '{"Username":"<token>","Secret":"tok"}'`)
	got, err := Get(t.Context(), configDir(t, `{"credsStore":"test"}`), named(t, "r.example/a"))
	if want := (registry.AuthConfig{IdentityToken: "tok", ServerAddress: "r.example"}); err != nil || got.Auth != want {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestHelperWithoutCredentialsIsNotAnError(t *testing.T) {
	helper(t, `echo 'credentials not found in native keychain'; exit 1`)
	if got, err := Get(t.Context(), configDir(t, `{"credsStore":"test"}`), named(t, "r.example/a")); err != nil || !got.Empty() {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFailingHelperErrorNamesHelperAndRemedy(t *testing.T) {
	for _, script := range []string{
		`echo '{"Username":"joe","Secret":"hunter2"}'; echo hunter2 >&2; exit 3`, `echo hunter2`, `echo '{"Secret":["hunter2"]}'`,
	} {
		name := helper(t, script)
		_, err := Get(t.Context(), configDir(t, `{"credsStore":"test"}`), named(t, "r.example/a"))
		wantError(t, err, errdefs.IsUnavailable, name, "r.example", `"echo r.example | docker-credential-test get"`)
	}
	_, err := Get(t.Context(), configDir(t, `{"credsStore":"no-such-program"}`), named(t, "r.example/a"))
	wantError(t, err, errdefs.IsPermissionDenied, "docker-credential-no-such-program", "r.example", "install it")
}

// The hanging helper is a shell whose child holds its output open: both must be killed.
func TestAHelperIsKilledWithItsContext(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "alive")
	helper(t, `(while :; do echo >`+marker+`; sleep 0.05; done) & wait`)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if _, err := os.Stat(marker); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if _, err := Get(ctx, configDir(t, `{"credsStore":"test"}`), named(t, "r.example/a")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for range 2 { // one write may have started before the kill
		if err := os.Remove(marker); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond) // six rounds of the child: the absence of writes cannot be waited for
		if _, err := os.Stat(marker); err != nil {
			return
		}
	}
	t.Error("the helper's child still runs")
}

func TestHangingHelperTimesOut(t *testing.T) {
	name := helper(t, `sleep 600`)
	start := time.Now()
	_, err := askHelper(t.Context(), name, "r.example", 100*time.Millisecond)
	wantError(t, err, errdefs.IsUnavailable, name, "r.example", "no answer within 100ms")
	if took := time.Since(start); took > 5*time.Minute { // Get waited for the helper
		t.Errorf("took %s", took)
	}
}
