// Package credentials reads the credentials for a registry from the Docker CLI's configuration.
package credentials

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/credentials"
	"github.com/docker/docker/api/types/registry"
)

// dockerHubKey is the CLI's key for the credentials of docker.io.
const dockerHubKey = "https://index.docker.io/v1/"

// Found is the result of Get.
type Found struct {
	// Auth is what to send to the engine; zero if there are no credentials for the registry.
	Auth registry.AuthConfig
	// Source is the file or program that Auth was read from, or that was searched.
	Source string
}

// failure is an error with a text for the user, without the text of its class or cause.
type failure struct {
	text  string
	class error
}

func (f *failure) Error() string { return f.text }

func (f *failure) Unwrap() error { return f.class }

// Empty reports whether there are no credentials.
func (f Found) Empty() bool {
	return f.Auth == registry.AuthConfig{}
}

// Get looks up the credentials for the registry of image in dir/config.json; an empty dir is the CLI's default:
// DOCKER_CONFIG, else ~/.docker. It reads the file at each call, so a later "docker login" takes effect. A missing file or
// entry is not an error.
//
// A helper program, "docker-credential-" and the name in credHelpers or credsStore, is killed with its children after
// HelperTimeout or when ctx ends.
//
// No error carries a secret, or any output of a helper. Classes: ErrPermissionDenied for permanent failures, a file that
// can't be read or a helper that is not installed; ErrUnavailable for a helper that failed or timed out; that of ctx.
func Get(ctx context.Context, dir string, image reference.Named) (Found, error) {
	if dir == "" {
		dir = config.Dir()
	}
	found := Found{Source: filepath.Join(dir, config.ConfigFileName)}
	file, err := config.Load(dir)
	if err != nil {
		return found, &failure{
			text:  fmt.Sprintf("%v: repair %s, or move it away and run \"docker login\"", err, found.Source),
			class: errdefs.ErrPermissionDenied,
		}
	}
	key := reference.Domain(image)
	if key == "docker.io" {
		key = dockerHubKey
	}
	if helper := helperFor(file, key); helper != "" {
		found.Source = helper
		found.Auth, err = askHelper(ctx, helper, key, HelperTimeout)
		return found, err
	}
	found.Auth = fromFile(file, key)
	return found, nil
}

// helperFor returns the helper program for key, or "". A name set to "" in credHelpers selects the file.
func helperFor(file *configfile.ConfigFile, key string) string {
	name, ok := file.CredentialHelpers[key]
	if !ok {
		name = file.CredentialsStore
	}
	if name == "" {
		return ""
	}
	return "docker-credential-" + name
}

func fromFile(file *configfile.ConfigFile, key string) registry.AuthConfig {
	kept, _ := credentials.NewFileStore(file).Get(key) // also matches keys with a scheme or path, which old CLIs wrote; never fails
	if kept.Username == "" && kept.Password == "" && kept.IdentityToken == "" && kept.RegistryToken == "" {
		return registry.AuthConfig{}
	}
	return registry.AuthConfig{
		Username: kept.Username, Password: kept.Password, ServerAddress: key,
		IdentityToken: kept.IdentityToken, RegistryToken: kept.RegistryToken,
	}
}

// Header returns the value of the header that the engine expects with a pull; "" for none.
func (f Found) Header() (string, error) {
	if f.Empty() {
		return "", nil
	}
	return registry.EncodeAuthConfig(f.Auth)
}

// Redact removes the secrets of f from text: a registry may echo what it received.
func (f Found) Redact(text string) string {
	pair := base64.StdEncoding.EncodeToString([]byte(f.Auth.Username + ":" + f.Auth.Password))
	for _, secret := range []string{pair, f.Auth.Password, f.Auth.IdentityToken, f.Auth.RegistryToken} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	return text
}
