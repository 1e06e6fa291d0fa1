package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/audit"
	"github.com/agbox/agbox/internal/termsafe"
	"github.com/agbox/agbox/store"
)

// Exit codes of agboxd audit.
const (
	exitViolations = 1
	exitNoLook     = 2
)

const (
	outputText = "text"
	outputJSON = "json"
)

type auditOptions struct {
	configFile, output, ledger string
	patience                   time.Duration
}

func auditCommand() *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use: "audit", Short: "Check records, containers and files against the crash contract", Args: usageArgs(cobra.NoArgs),
		Long: "Check every invariant of docs/crash-contract.md: in a copy of the database, in the engine, in the packet filter, and in the state\n" +
			"directory. The audit changes nothing. A running daemon supplies the copy; without one the audit reads the file. A difference that\n" +
			"the running daemon may still repair is a violation only if it persists for --patience; without a daemon it is a warning.\n" +
			"Exit codes: 0 no violation, 1 violations, 2 the audit could not run.",
		Example: "  agboxd audit\n  agboxd audit -o json | jq '.violations[]'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runAudit(cmd, o)
		},
	}
	cmd.Flags().StringVar(&o.configFile, "config", "", configFlagHelp)
	cmd.Flags().StringVarP(&o.output, "output", "o", outputText, `"text" or "json"`)
	cmd.Flags().StringVar(&o.ledger, "ledger", "", "directory in which test programs note their starts and ends")
	cmd.Flags().Var(quantity.NewDurationFlag(&o.patience, 10*time.Second), "patience", "how long a difference that the daemon may still repair must persist")
	return cmd
}

func runAudit(cmd *cobra.Command, o auditOptions) error {
	if o.output != outputText && o.output != outputJSON {
		return &exitError{exitUsage, fmt.Errorf("--output is %q; use %s or %s", o.output, outputText, outputJSON)}
	}
	cfg, _, paths, err := effective(cmd, o.configFile)
	if err != nil {
		return err
	}
	site := audit.Site{
		RunRoot: siteOf(cfg, paths).RunRoot(), LogRoot: cfg.Artifacts.ExecOutputRoot, TxLog: store.LogDir(paths.Database),
		Engine: cmp.Or(cfg.Docker.Host, os.Getenv("DOCKER_HOST")), Ledger: o.ledger,
	}
	r, err := auditRecords(cmd.Context(), site, paths, audit.Options{Patience: o.patience})
	if err != nil {
		return &exitError{exitNoLook, err}
	}
	if o.output == outputJSON {
		var text []byte
		if text, err = json.MarshalIndent(r, "", "  "); err == nil {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", termsafe.JSON(text))
		}
	} else {
		r.Write(cmd.OutOrStdout())
	}
	switch {
	case err != nil:
		return &exitError{exitNoLook, err}
	case !r.OK():
		return &exitError{exitViolations, fmt.Errorf("%d violations of the crash contract", len(r.Violations))}
	}
	return nil
}

// auditRecords reads the database file if agboxd does not run, and otherwise calls agboxd for a copy. An audit of a file reads it once; if
// agboxd stops during an audit that calls it, the audit returns an error instead of a verdict.
func auditRecords(ctx context.Context, site audit.Site, paths config.Paths, o audit.Options) (audit.Report, error) {
	r, err := audit.Run(ctx, site, audit.FromFile(paths.Database), o)
	if !errors.Is(err, audit.ErrRunning) {
		return r, err
	}
	conn, err := grpc.NewClient("unix://"+paths.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return r, fmt.Errorf("call agboxd: %w", err)
	}
	defer func() { _ = conn.Close() }()
	return audit.Run(ctx, site, audit.FromDaemon(agboxv1.NewAdminServiceClient(conn)), o)
}
