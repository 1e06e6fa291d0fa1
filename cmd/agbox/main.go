// Command agbox is the command-line client of agboxd: see "agbox --help".
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/cli"
	"github.com/agbox/agbox/store"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(withSignals()) }

func withSignals() int {
	ctx, stop := cli.WithSignals(context.Background(), os.Exit)
	defer stop()
	return run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 2 && args[0] == backup.CheckVerb {
		return checkStore(args[1], stderr)
	}
	return cli.Run(ctx, args, version, cli.Streams{In: stdin, Out: stdout, Err: stderr})
}

// checkStore is the child process of "agbox backup verify": reading a damaged database may cause a fault that cannot be recovered from.
func checkStore(path string, stderr io.Writer) int {
	if err := store.CheckFile(path); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}
