//go:build docker

package e2e

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

var e2bSDKs = flag.String("e2b", "", "the directory in which hack/e2b.sh has installed releases of E2B's SDK; empty: leave those tests out")

// TestE2BSDKs runs each release against a daemon that is killed in the middle. At the end no sandbox is left.
func TestE2BSDKs(t *testing.T) {
	if *e2bSDKs == "" {
		t.Skip("needs E2B's SDK from npm: make test-e2b installs it and gives its directory")
	}
	packages := must(filepath.Glob(filepath.Join(*e2bSDKs, "node_modules", "e2b-*")))(t)
	if len(packages) == 0 {
		t.Fatalf("%s has no release", *e2bSDKs)
	}
	for _, dir := range packages {
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			address := freeAddress(t)
			d := newDaemon(t, "", fmt.Sprintf("\n[e2b]\nlisten = %q\n[e2b.templates]\nbase = %q\ntiny = \"agbox-base:dev\"\n", address, *devImage))
			made := must(agboxv1.NewGatewayServiceClient(d.conn).CreateGatewayKey(d.ctx(), &agboxv1.CreateGatewayKeyRequest{}))(t)
			node := exec.CommandContext(t.Context(), "node", filepath.Join(*e2bSDKs, "smoke.mjs"), name)
			url := "http://" + address
			node.Env = append(os.Environ(), "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "E2B_API_KEY=e2b_"+made.GetKey())
			node.Stderr = os.Stderr
			in, out := must(node.StdinPipe())(t), must(node.StdoutPipe())(t)
			if err := node.Start(); err != nil {
				t.Fatal(err)
			}
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if lines.Text() != "@kill" {
					t.Log(lines.Text())
					continue
				}
				d.restart()
				if _, err := io.WriteString(in, "back\n"); err != nil {
					t.Error(err)
				}
			}
			if err := node.Wait(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			list := must(d.ListSandboxes(d.ctx(), &agboxv1.ListSandboxesRequest{GatewayOwner: "default"}))(t)
			for _, sb := range list.GetSandboxes() {
				// The create that the kill cut off has no client any more, and a deadline.
				cutOff := sb.GetSpec().GetGateway().GetMetadata()["cut"] == "off" && sb.GetSpec().GetTimeout() != nil
				if !cutOff && sb.GetState() != agboxv1.SandboxState_SANDBOX_STATE_DELETING {
					t.Errorf("left: %v", sb)
				}
			}
		})
	}
}
