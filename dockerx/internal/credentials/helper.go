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

// HelperTimeout bounds one run of a helper, which may query a keyring or a cloud's token service.
const HelperTimeout = 10 * time.Second

// tokenUser is the username that a helper returns with an identity token.
const tokenUser = "<token>"

// askHelper runs the helper program for key; zero if it has no credentials.
func askHelper(ctx context.Context, helper, key string, timeout time.Duration) (registry.AuthConfig, error) {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	kept, err := client.Get(program(within, helper), key)
	switch {
	case err == nil:
	case credentials.IsErrCredentialsNotFound(err):
		return registry.AuthConfig{}, nil
	case ctx.Err() != nil:
		return registry.AuthConfig{}, ctx.Err()
	default:
		return registry.AuthConfig{}, helperError(within, timeout, helper, key)
	}
	auth := registry.AuthConfig{ServerAddress: key}
	if kept.Username == tokenUser {
		auth.IdentityToken = kept.Secret
	} else {
		auth.Username, auth.Password = kept.Username, kept.Secret
	}
	return auth, nil
}

// helperError says what went wrong. It never includes the helper's output, which may contain a secret.
func helperError(within context.Context, timeout time.Duration, helper, key string) error {
	if _, err := exec.LookPath(helper); err != nil {
		return &failure{class: errdefs.ErrPermissionDenied, text: fmt.Sprintf("the credential helper %s for %s is not in the PATH "+
			"of agboxd: install it, or remove it from the config.json of the Docker CLI", helper, key)}
	}
	what := "failed"
	if errors.Is(within.Err(), context.DeadlineExceeded) {
		what = fmt.Sprintf("gave no answer within %s", timeout)
	}
	return &failure{class: errdefs.ErrUnavailable, text: fmt.Sprintf("the credential helper %s for %s %s: to see why, run "+
		"\"echo %s | %s get\" as the user of agboxd", helper, key, what, key, helper)}
}

// program returns how to run the helper until ctx ends.
func program(ctx context.Context, helper string) client.ProgramFunc {
	return func(args ...string) client.Program {
		cmd := exec.CommandContext(ctx, helper, args...)
		// The whole process group is killed: a surviving child would keep stdout open.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second // for a child in a process group of its own
		return command{cmd}
	}
}

// command makes exec.Cmd a client.Program.
type command struct{ *exec.Cmd }

func (c command) Input(in io.Reader) { c.Stdin = in }
