//go:build docker

package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// python is Debian's, which finds Debian's grpcio.
const python = "/usr/bin/python3"

// pythonStubs generates the stubs of the protos and returns the directory.
func pythonStubs(t *testing.T) string {
	t.Helper()
	plugin, missing := exec.LookPath("grpc_python_plugin")
	for _, cmd := range []*exec.Cmd{exec.Command("protoc", "--version"), exec.Command(python, "-c", "import grpc, google.protobuf")} {
		if err := cmd.Run(); missing == nil {
			missing = err
		}
	}
	if missing != nil {
		t.Skipf("needs protoc, its Python plugin and Python with grpcio (%v): hack/test-tools.sh installs Debian's packages of them", missing)
	}
	dir, apis := t.TempDir(), filepath.Join("..", "..", "..", "apis")
	protos := must(filepath.Glob(filepath.Join(apis, "agbox", "v1", "*.proto")))(t)
	args := append([]string{"-I", apis, "--python_out=" + dir, "--grpc_python_out=" + dir, "--plugin=protoc-gen-grpc_python=" + plugin}, protos...)
	if out, err := exec.Command("protoc", args...).CombinedOutput(); err != nil {
		t.Fatalf("protoc: %v\n%s", err, out)
	}
	return dir
}

// TestAnOlderPythonClient lists, creates, runs and subscribes while things are there that it does not know: a PAUSED sandbox, the events
// of a pull, and a timeout that another client sets.
func TestAnOlderPythonClient(t *testing.T) {
	t.Parallel()
	stubs := pythonStubs(t)
	r := newRegistry(t, 1<<20)
	r.Release()
	d := newDaemon(t, "", "")
	frozen := d.create(&agboxv1.CreateSpec{Image: baseImage})
	d.await(frozen, ready)
	must(d.PauseSandbox(d.ctx(), &agboxv1.PauseSandboxRequest{SandboxId: frozen}))(t)
	d.await(frozen, paused)

	var problems bytes.Buffer
	cmd := exec.CommandContext(d.ctx(), python, "testdata/python/older.py", d.home+"/run/agbox/agboxd.sock", r.Ref("run"), frozen)
	cmd.Env, cmd.Stderr = append(os.Environ(), "PYTHONPATH="+stubs, "PYTHONDONTWRITEBYTECODE=1"), &problems
	out := must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var box, run string
	if lines.Scan() {
		_, _ = fmt.Sscan(lines.Text(), &box, &run)
	}
	if run == "" {
		_ = cmd.Wait()
		t.Fatalf("before the exec: %s", problems.Bytes())
	}
	must(d.SetSandboxTimeout(d.ctx(), &agboxv1.SetSandboxTimeoutRequest{
		SandboxId: box, When: &agboxv1.SetSandboxTimeoutRequest_Timeout{Timeout: durationpb.New(time.Hour)},
	}))(t)
	d.sh(box, "touch /workspace/go")
	ok := lines.Scan() && lines.Text() == "ok"
	if err := cmd.Wait(); err != nil || !ok {
		t.Fatalf("%v\n%s", err, problems.Bytes())
	}
	if len(d.pulled(box)) == 0 {
		t.Error("no event of a pull was recorded")
	}
	d.remove(frozen)
}
