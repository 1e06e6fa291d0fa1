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
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

var e2bSDKs = flag.String("e2b", "", "the directory in which hack/e2b.sh has installed releases of E2B's SDK; empty: leave those tests out")

// crashRelease is the release that is killed in the middle of each call.
const crashRelease = "e2b-2.51.0"

// e2bPackages returns the names of the releases that are installed.
func e2bPackages(t *testing.T) (names []string) {
	t.Helper()
	if *e2bSDKs == "" {
		t.Skip("needs E2B's SDK from npm: make test-e2b installs it and gives its directory")
	}
	for _, dir := range must(filepath.Glob(filepath.Join(*e2bSDKs, "node_modules", "e2b-*")))(t) {
		names = append(names, filepath.Base(dir))
	}
	if len(names) == 0 {
		t.Fatalf("%s has no release", *e2bSDKs)
	}
	return names
}

// e2bDaemon starts a daemon for clients of E2B. node returns a command with the settings for it.
func e2bDaemon(t *testing.T) (d *daemon, node func(args ...string) *exec.Cmd) {
	t.Helper()
	address := freeAddress(t)
	d = newDaemon(t, "", fmt.Sprintf("\n[e2b]\nlisten = %q\n[e2b.templates]\nbase = %q\ntiny = \"agbox-base:dev\"\n", address, *devImage))
	made := must(agboxv1.NewGatewayServiceClient(d.conn).CreateGatewayKey(d.ctx(), &agboxv1.CreateGatewayKeyRequest{}))(t)
	url := "http://" + address
	return d, func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "node", args...)
		cmd.Env = append(os.Environ(), "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "E2B_API_KEY=e2b_"+made.GetKey())
		cmd.Stderr = os.Stderr
		return cmd
	}
}

// runSDK runs a suite of hack/e2b with a release of the SDK against a new daemon, which it kills whenever the suite asks for it.
func runSDK(t *testing.T, suite, release string) *daemon {
	t.Helper()
	d, command := e2bDaemon(t)
	node := command(filepath.Join(*e2bSDKs, suite), release)
	in, out := must(node.StdinPipe())(t), must(node.StdoutPipe())(t)
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch text := lines.Text(); {
		case text == "@kill":
			d.restart()
			if _, err := io.WriteString(in, "back\n"); err != nil {
				t.Error(err)
			}
		case strings.HasPrefix(text, "FAIL "):
			t.Error(text)
		default:
			t.Log(text)
		}
	}
	if err := node.Wait(); err != nil {
		t.Errorf("%s: %v", release, err)
	}
	return d
}

// TestE2BSDKs runs each release against a daemon that is killed in the middle. At the end no sandbox is left.
func TestE2BSDKs(t *testing.T) {
	for _, name := range e2bPackages(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := runSDK(t, "smoke.mjs", name)
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

// TestE2BCrash kills the daemon in the middle of each kind of call. At the end no sandbox, container, network or image is left.
func TestE2BCrash(t *testing.T) {
	t.Parallel()
	e2bPackages(t)
	d := runSDK(t, "crash.mjs", crashRelease)
	instance := d.read(filepath.Join(d.home, "data/agents-sandbox/instance"))
	d.eventually("all is gone", func() error {
		left := ""
		for _, sb := range must(d.ListSandboxes(d.ctx(), &agboxv1.ListSandboxesRequest{}))(t).GetSandboxes() {
			left += fmt.Sprintf("sandbox %s %v\n", sb.GetSandboxId(), sb.GetState())
		}
		label := "label=" + naming.Instance + "=" + strings.TrimSpace(instance)
		left += d.docker("ps", "-a", "--filter", label) + d.docker("network", "ls", "--filter", label)
		left += d.docker("images", "-a", "--filter", "label="+naming.SnapshotInstance+"="+strings.TrimSpace(instance))
		if n := strings.Count(left, "\n"); n > 3 { // the headings of the tables
			return fmt.Errorf("left:\n%s", left)
		}
		return nil
	})
}

// TestE2BInterpreter runs cells in agbox-interpreter:dev.
func TestE2BInterpreter(t *testing.T) {
	t.Parallel()
	e2bPackages(t)
	d := runSDK(t, "interpreter.mjs", "@e2b/code-interpreter")
	c := agboxv1.NewTemplateServiceClient(d.conn)
	d.eventually("the template is removed", func() error { // its sandbox may still be being removed
		for _, made := range must(c.ListTemplates(d.ctx(), &agboxv1.ListTemplatesRequest{}))(t).GetTemplates() {
			if _, err := c.RemoveTemplate(d.ctx(), &agboxv1.RemoveTemplateRequest{GatewayOwner: made.GetGatewayOwner(), TemplateId: made.GetTemplateId()}); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestE2BExamples: each example prints what its last comment says, and leaves no sandbox.
func TestE2BExamples(t *testing.T) {
	t.Parallel()
	e2bPackages(t)
	d, node := e2bDaemon(t)
	files := must(filepath.Glob(filepath.Join(*e2bSDKs, "examples", "*.mjs")))(t)
	if len(files) == 0 {
		t.Fatal("there is no example")
	}
	for _, file := range files {
		name := filepath.Base(file)
		_, comment, ok := strings.Cut(string(must(os.ReadFile(file))(t)), "\n// Prints:\n")
		if !ok {
			t.Errorf("%s does not say what it prints", name)
		}
		want := strings.ReplaceAll("\n"+comment, "\n// ", "\n")[1:]
		if got, err := node(file).Output(); err != nil || string(got) != want {
			t.Errorf("%s printed\n%s, %v; want\n%s", name, got, err, want)
		}
	}
	d.eventually("all sandboxes are gone", func() error {
		if left := must(d.ListSandboxes(d.ctx(), &agboxv1.ListSandboxesRequest{}))(t).GetSandboxes(); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}
