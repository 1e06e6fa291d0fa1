package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker-credential-helpers/client"
	"github.com/docker/docker-credential-helpers/credentials"
	"github.com/docker/docker/api/types/registry"
)

// HelperTimeout is how long a helper may take: it asks a keyring or a cloud's token service.
const HelperTimeout = 10 * time.Second

// tokenUser is the name that a helper gives when its secret is an identity token.
const tokenUser = "<token>"

// askHelper gets what the helper program keeps for key; zero if that is nothing.
func askHelper(ctx context.Context, helper, key string, patience time.Duration) (registry.AuthConfig, error) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	kept, err := client.Get(program(within, helper), key)
	switch {
	case err == nil:
	case credentials.IsErrCredentialsNotFound(err):
		return registry.AuthConfig{}, nil
	case ctx.Err() != nil:
		return registry.AuthConfig{}, ctx.Err()
	default:
		return registry.AuthConfig{}, helperError(within, patience, helper, key)
	}
	auth := registry.AuthConfig{ServerAddress: key}
	if kept.Username == tokenUser {
		auth.IdentityToken = kept.Secret
	} else {
		auth.Username, auth.Password = kept.Username, kept.Secret
	}
	return auth, nil
}

// helperError says what went wrong. It knows nothing of the helper's output, in which a secret could be.
func helperError(within context.Context, patience time.Duration, helper, key string) error {
	if _, err := exec.LookPath(helper); err != nil {
		return &failure{class: errdefs.ErrPermissionDenied, text: fmt.Sprintf("the credential helper %s for %s is not in the PATH "+
			"of agboxd: install it, or take it out of the config.json of the Docker CLI", helper, key)}
	}
	what := "failed"
	if errors.Is(within.Err(), context.DeadlineExceeded) {
		what = fmt.Sprintf("gave no answer within %s", patience)
	}
	return &failure{class: errdefs.ErrUnavailable, text: fmt.Sprintf("the credential helper %s for %s %s: to see why, run "+
		"\"echo %s | %s get\" as the user of agboxd", helper, key, what, key, helper)}
}

// program returns how to run the helper until ctx ends.
func program(ctx context.Context, helper string) client.ProgramFunc {
	return func(args ...string) client.Program {
		cmd := exec.CommandContext(ctx, helper, args...)
		// A script's children go with it: one of them would keep its stdout open.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second // for a child that made a group of its own
		return command{cmd}
	}
}

// command makes exec.Cmd a client.Program.
type command struct{ *exec.Cmd }

// Input implements client.Program.
func (c command) Input(in io.Reader) { c.Stdin = in }
