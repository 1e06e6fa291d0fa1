package cli

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// e2bKeyPrefix starts the keys that E2B's SDKs accept.
const e2bKeyPrefix = "e2b_"

func (a *app) e2bCommand() *cobra.Command {
	cmd := group("e2b", "Use the daemon with the SDKs of E2B", `Use the daemon with the SDKs of E2B, unmodified.

agboxd serves their API where its configuration has e2b.listen, or with "agboxd --e2b 127.0.0.1:3000". docs/e2b.md has the details.`)
	keys := group("keys", "Make, list and revoke API keys", `Make, list and revoke API keys.

A key belongs to an owner. All keys of an owner see the same sandboxes, and no others. The daemon stores only a hash of each key.`)
	keys.AddCommand(a.e2bCreateKeyCommand(), a.e2bListKeysCommand(), a.e2bRemoveKeysCommand())
	cmd.AddCommand(a.e2bEnvCommand(), keys)
	return cmd
}

func (a *app) e2bCreateKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "create [OWNER]", Short: "Make an API key and print it", Example: "  agbox e2b keys create ci",
		Long: `Make an API key and print it. It cannot be shown again. Without OWNER it belongs to the owner "default".`,
		Args: atMostOne("at most one owner"),
		RunE: func(cmd *cobra.Command, args []string) error {
			made, err := a.conn().CreateGatewayKey(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, e2bKeyPrefix+made.GetKey())
			return nil
		},
	}
}

func (a *app) e2bListKeysCommand() *cobra.Command {
	var o *output
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the API keys by their IDs", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.conn().GatewayKeys(cmd.Context())
			if err != nil {
				return err
			}
			return a.showKeys(all, o)
		},
	}
	o = outputFlag(cmd, listFormats...)
	return cmd
}

func (a *app) showKeys(all []*agboxv1.GatewayKey, o *output) error {
	switch {
	case o.format == "name":
		for _, k := range all {
			fmt.Fprintln(a.Out, k.GetKeyId())
		}
	case o.given():
		return printList(a, all, o)
	case len(all) == 0:
		fmt.Fprintln(a.Err, `no keys; "agbox e2b keys create" makes one`)
	default:
		t := &table{}
		t.add("KEY ID", "OWNER", "AGE")
		for _, k := range all {
			t.add(k.GetKeyId(), k.GetOwner(), age(k.GetCreatedAt().AsTime(), time.Now()))
		}
		t.write(a.Out)
	}
	return nil
}

func (a *app) e2bRemoveKeysCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm KEY-ID...", Aliases: []string{"remove", "delete", "revoke"}, Short: "Revoke API keys; their sandboxes stay",
		Args: atLeastOne(`the IDs of keys; "agbox e2b keys ls" lists them`),
		RunE: func(cmd *cobra.Command, args []string) error {
			failed := false
			for _, id := range args {
				if err := a.conn().RevokeGatewayKey(cmd.Context(), id); err != nil {
					failed = true
					a.complain(err)
					continue
				}
				fmt.Fprintf(a.Out, "key/%s revoked\n", id)
			}
			return outcomeOf(cmd.Context(), failed)
		},
	}
}

var e2bKey = regexp.MustCompile(`^e2b_[0-9a-f]{56}$`)

func (a *app) e2bEnvCommand() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "env", Short: "Print the environment variables that the SDKs need, for a shell", Args: noArgs,
		Long: `Print the environment variables that the SDKs of E2B need, as export commands of a shell. Without --key it makes a key for the owner
"default".`,
		Example: "  eval \"$(agbox e2b env)\"\n  agbox e2b env --key \"$E2B_API_KEY\"",
	}
	cmd.Flags().StringVar(&key, "key", "", "an API key of \"agbox e2b keys create\"")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if key != "" && !e2bKey.MatchString(key) {
			return usagef(cmd, "--key is not an API key: %s and 56 hexadecimal digits", e2bKeyPrefix)
		}
		ping, err := a.conn().Ping(cmd.Context())
		if err != nil {
			return err
		}
		address := ping.GetGateways()["e2b"]
		if address == "" {
			return errors.New(`agboxd does not serve the API of E2B: set e2b.listen in its configuration, or start it with "agboxd --e2b 127.0.0.1:3000"`)
		}
		if key == "" {
			made, err := a.conn().CreateGatewayKey(cmd.Context(), "")
			if err != nil {
				return err
			}
			key = e2bKeyPrefix + made.GetKey()
		}
		base := baseURL(address)
		fmt.Fprintf(a.Out, "export E2B_API_URL=%[1]s\nexport E2B_SANDBOX_URL=%[1]s\nexport E2B_DOMAIN=%[2]s\nexport E2B_API_KEY=%[3]s\n",
			base, e2bDomain(address), key)
		return nil
	}
	return cmd
}

// baseURL returns the URL of a gateway for this host: one that listens on all addresses is reached as localhost.
func baseURL(address string) string {
	scheme, hostPort := "http", address
	if rest, ok := strings.CutPrefix(address, "https://"); ok {
		scheme, hostPort = "https", rest
	}
	if host, port, err := net.SplitHostPort(hostPort); err == nil {
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			hostPort = "localhost:" + port
		}
	}
	return scheme + "://" + hostPort
}

// e2bDomain returns the domain of the host names of sandboxes' ports: every name below localhost leads to this host.
func e2bDomain(address string) string {
	return "localhost" + address[strings.LastIndex(address, ":"):]
}
