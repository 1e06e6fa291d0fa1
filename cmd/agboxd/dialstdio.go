package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

// dialStdioCommand returns the command that "agbox --host ssh://..." runs on this host.
func dialStdioCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use: "dial-stdio", Short: "Connect standard input and output with the daemon's socket, for agbox --host ssh://", Args: usageArgs(cobra.NoArgs),
		Long: "Connect standard input and output with the socket of the daemon, as a client over ssh needs it. It ends when the daemon closes the\n" +
			"connection. Without --socket it finds the daemon as agbox does: the user's own, or else the system service.\n" +
			"Exit codes: 1 the daemon does not answer now, 2 there can be none at the socket.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return dialStdio(cmd.Context(), cmp.Or(socket, client.DefaultSocket()), cmd.InOrStdin(), termsafe.Unfiltered(cmd.OutOrStdout()))
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "path of the socket")
	return cmd
}

// dialStdio copies in both directions until the daemon closes the connection, out fails or ctx ends. The end of in closes one half of the
// connection. A goroutine that waits for in ends with the process.
func dialStdio(ctx context.Context, socket string, in io.Reader, out io.Writer) error {
	if strings.Contains(client.SocketPath(socket), "://") {
		return coded(exitUsage, errors.New(client.EnvHost+" on this host is not the path of a socket"))
	}
	conn, err := client.DialSocket(ctx, socket)
	if err != nil {
		if !client.IsUnavailable(err) {
			err = coded(client.ExitHopeless, err)
		}
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() {
		_, _ = io.Copy(conn, in) // a broken connection ends the other direction, too
		_ = conn.CloseWrite()
	}()
	if _, err = io.Copy(out, conn); errors.Is(err, net.ErrClosed) {
		return ctx.Err()
	}
	return err
}
