package cli

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/cli/contexts"
)

func (a *app) contextCommand() *cobra.Command {
	cmd := group("context", "Name the daemons of other hosts", `Name the daemons of other hosts, and choose the one that commands use.

The daemon of a command is that of the first of these: --host, --context, AGBOX_HOST, AGBOX_CONTEXT, the context of "agbox context use",
and the socket on this host, which is the context "default". The contexts are in agbox/contexts.json in $XDG_CONFIG_HOME or ~/.config.`)
	cmd.Aliases = []string{"contexts"}
	cmd.Example = "  agbox context create prod --host ssh://me@prod.example.com\n  agbox --context prod get\n  agbox context use prod"
	cmd.AddCommand(a.contextListCommand(), a.contextUseCommand(), a.contextCreateCommand(), a.contextRemoveCommand(), a.contextShowCommand())
	return cmd
}

// namedContext is a context as "ls -o json" and "show" print it.
type namedContext struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	contexts.Context
}

// allContexts returns the default one and those of the file, sorted by name.
func allContexts() (all []namedContext, err error) {
	path, err := contexts.Path()
	if err != nil {
		return nil, err
	}
	file, err := contexts.Load(path)
	if err != nil {
		return nil, err
	}
	current := cmp.Or(file.Current, contexts.Default)
	file.Contexts[contexts.Default] = contexts.Context{Host: client.LocalSocket()}
	for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
		all = append(all, namedContext{name, name == current, file.Contexts[name]})
	}
	return all, nil
}

func (a *app) contextListCommand() *cobra.Command {
	var o *output
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the contexts; \"*\" marks the current one", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := allContexts()
			if err != nil {
				return err
			}
			t := &table{}
			t.add("CURRENT", "NAME", "HOST")
			for _, c := range all {
				switch o.format {
				case "json":
					if err := printLine(a.Out, c); err != nil {
						return err
					}
				case "name":
					fmt.Fprintln(a.Out, c.Name)
				default:
					t.add(textIf(c.Current, "*"), c.Name, c.Host)
				}
			}
			if !o.given() {
				t.write(a.Out)
			}
			return nil
		},
	}
	o = outputFlag(cmd, "json", "name")
	return cmd
}

func (a *app) contextUseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Make a context the current one; \"default\" is this host", Args: one("the name of a context"),
		ValidArgsFunction: perArgument(a.contextNames(true)),
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := contexts.Path()
			if err != nil {
				return err
			}
			err = contexts.Update(path, func(f *contexts.File) error {
				f.Current = args[0]
				if args[0] == contexts.Default {
					f.Current = ""
				} else if _, ok := f.Contexts[args[0]]; !ok {
					return noContext(args[0], path)
				}
				return nil
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "context %s is the current one\n", args[0])
			for _, env := range []string{client.EnvHost, envContext} {
				a.hint(textIf(os.Getenv(env) != "", "warning: "+env+" is set and takes precedence"))
			}
			return nil
		},
	}
}

func (a *app) contextCreateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "create NAME --host HOST", SuggestFor: []string{"add", "set"}, Short: "Name a host", Args: one("the name of the new context"),
		Long: `Name a host. A host tcp://HOST:PORT also needs --tls-cert, --tls-key and --tls-ca; the context keeps the paths of these files. To change
a context, remove it and create it again.`,
		Example: "  agbox context create prod --host ssh://me@prod.example.com\n" +
			"  agbox context create lab --host tcp://lab.example.com:9479 --tls-cert me.pem --tls-key me.key --tls-ca ca.pem",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.flags.Host == "" {
				return usagef(cmd, "expected --host")
			}
			if err := contexts.CheckName(args[0]); err != nil {
				return usagef(cmd, "%s", err)
			}
			one, err := a.newContext()
			if err != nil {
				return err
			}
			path, err := contexts.Path()
			if err != nil {
				return err
			}
			err = contexts.Update(path, func(f *contexts.File) error {
				if old, exists := f.Contexts[args[0]]; exists {
					return fmt.Errorf("context %q already exists in %s, with host %s; remove it first with \"agbox context rm %s\"", args[0], path, old.Host, args[0])
				}
				f.Contexts[args[0]] = one
				return nil
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "context %s created\n", args[0])
			return nil
		},
	}
}

// newContext returns the host of the flags, with absolute paths, after the checks that need no connection.
func (a *app) newContext() (contexts.Context, error) {
	c := a.flags.Context
	for _, path := range []*string{&c.TLSCert, &c.TLSKey, &c.TLSCA} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return c, err
		}
		*path = abs
	}
	if !strings.Contains(client.SocketPath(c.Host), "://") && !filepath.IsAbs(client.SocketPath(c.Host)) {
		return c, fmt.Errorf("host %q: write an absolute path", c.Host)
	}
	config, err := target{Context: c}.tls()
	if err != nil {
		return c, err
	}
	conn, err := client.DialWith(c.Host, client.Options{TLS: config}) // does no I/O
	if err != nil {
		return c, err
	}
	return c, conn.Close()
}

func (a *app) contextRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"remove", "delete"}, Short: "Remove contexts", Args: atLeastOne("the names of contexts"),
		ValidArgsFunction: a.contextNames(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := contexts.Path()
			if err != nil {
				return err
			}
			err = contexts.Update(path, func(f *contexts.File) error {
				for _, name := range args {
					if _, ok := f.Contexts[name]; !ok {
						return noContext(name, path)
					}
					if name == f.Current {
						return fmt.Errorf("context %q in %s is the current one; choose another first, such as \"agbox context use default\"", name, path)
					}
					delete(f.Contexts, name)
				}
				return nil
			})
			if err != nil {
				return err
			}
			for _, name := range args {
				fmt.Fprintf(a.Out, "context %s removed\n", name)
			}
			return nil
		},
	}
}

func (a *app) contextShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show [NAME]", SuggestFor: []string{"describe", "inspect", "current"}, Short: "Show a context, or the daemon that commands would use and why",
		Args: atMostOne("at most the name of one context"), ValidArgsFunction: perArgument(a.contextNames(true)),
		RunE: func(_ *cobra.Command, args []string) error {
			var t target
			var err error
			if len(args) == 1 {
				t, err = contextTarget(args[0], "")
			} else {
				t, err = a.target()
			}
			if err != nil {
				return err
			}
			rows := &table{}
			for _, row := range [][2]string{
				{"Context:", t.name}, {"Host:", t.Host}, {"TLS certificate:", t.TLSCert}, {"TLS key:", t.TLSKey},
				{"TLS authority:", t.TLSCA}, {"File:", t.file}, {"Chosen by:", t.why},
			} {
				if row[1] != "" {
					rows.add(row[0], row[1])
				}
			}
			rows.write(a.Out)
			return nil
		},
	}
}

// contextNames completes the names of contexts.
func (a *app) contextNames(withDefault bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		all, err := allContexts()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, c := range all {
			if !slices.Contains(args, c.Name) && (withDefault || c.Name != contexts.Default) {
				names = append(names, c.Name+"\t"+c.Host)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
