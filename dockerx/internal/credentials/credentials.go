// Package credentials finds the credentials for a registry where the Docker CLI keeps them.
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

// dockerHubKey is what the CLI files the credentials of docker.io under.
const dockerHubKey = "https://index.docker.io/v1/"

// Found is what Get found.
type Found struct {
	// Auth is what the engine is to be sent; zero if there is nothing for the registry.
	Auth registry.AuthConfig
	// Source is the file or the program that Auth came from, or where it should have come from.
	Source string
}

// failure is an error with a text for people that does not repeat its class, nor wrap what it came from.
type failure struct {
	text  string
	class error
}

// Error implements error.
func (f *failure) Error() string { return f.text }

// Unwrap returns the class.
func (f *failure) Unwrap() error { return f.class }

// Empty reports whether there are no credentials.
func (f Found) Empty() bool {
	return f.Auth == registry.AuthConfig{}
}

// Get looks up the credentials for the registry that image is pulled from, in dir/config.json; an empty dir is that of the
// CLI: DOCKER_CONFIG, else ~/.docker. It reads the file each time, so a later "docker login" counts. A missing file, or
// none for this registry, is no error.
//
// A helper program, "docker-credential-" and the name in credHelpers or credsStore, has HelperTimeout and is killed, with
// its children, at its end or that of ctx.
//
// No error carries a secret, or any output of a helper. Classes: ErrPermissionDenied for what trying again does not mend,
// a file that can't be read or a helper that is not installed; ErrUnavailable for a helper that failed or took too long;
// that of ctx.
func Get(ctx context.Context, dir string, image reference.Named) (Found, error) {
	if dir == "" {
		dir = config.Dir()
	}
	found := Found{Source: filepath.Join(dir, config.ConfigFileName)}
	file, err := config.Load(dir)
	if err != nil {
		return found, &failure{
			text:  fmt.Sprintf("%v: mend %s, or move it away and run \"docker login\"", err, found.Source),
			class: errdefs.ErrPermissionDenied,
		}
	}
	key := registryKey(image)
	if helper := helperFor(file, key); helper != "" {
		found.Source = helper
		found.Auth, err = askHelper(ctx, helper, key, HelperTimeout)
		return found, err
	}
	found.Auth = fromFile(file, key)
	return found, nil
}

// registryKey is the name under which the CLI keeps what belongs to the registry of image.
func registryKey(image reference.Named) string {
	if domain := reference.Domain(image); domain != "docker.io" {
		return domain
	}
	return dockerHubKey
}

// helperFor returns the program to ask for key, or "". A name that is set to "" in credHelpers means the file.
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
	kept, _ := credentials.NewFileStore(file).Get(key) // knows names with a scheme or path, as old CLIs wrote them; never fails
	if kept.Username == "" && kept.Password == "" && kept.IdentityToken == "" && kept.RegistryToken == "" {
		return registry.AuthConfig{}
	}
	return registry.AuthConfig{
		Username: kept.Username, Password: kept.Password, ServerAddress: key,
		IdentityToken: kept.IdentityToken, RegistryToken: kept.RegistryToken,
	}
}

// Header is f as the engine wants it with a pull; "" for none.
func (f Found) Header() (string, error) {
	if f.Empty() {
		return "", nil
	}
	return registry.EncodeAuthConfig(f.Auth)
}

// Redact returns text without the secrets of f: a registry may say anything, even what it was sent.
func (f Found) Redact(text string) string {
	pair := base64.StdEncoding.EncodeToString([]byte(f.Auth.Username + ":" + f.Auth.Password))
	for _, secret := range []string{pair, f.Auth.Password, f.Auth.IdentityToken, f.Auth.RegistryToken} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	return text
}
