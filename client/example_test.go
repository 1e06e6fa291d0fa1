package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/testing/conformance"
	"github.com/agbox/agbox/internal/testing/conformance/fakedaemon"
)

// TestExamples runs the examples on a daemon. They have no output comments, since without a daemon they fail.
func TestExamples(t *testing.T) {
	d := fakedaemon.Start(t, conformance.Settings{})
	t.Setenv(client.EnvHost, d.Socket())
	for name, example := range map[string]struct {
		run  func()
		want string
	}{
		"command":  {ExampleClient_Command, "hello\nexit code 3: no such table\n"},
		"stdin":    {ExampleCmd_Run, "3\n"},
		"pipes":    {ExampleCmd_Start, "HELLO\nWORLD\n"},
		"fs":       {ExampleClient_FS, "config.json {}\n"},
		"deadline": {ExampleCmd_Wait, "context deadline exceeded, EXEC_STATE_CANCELLED\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := printed(t, example.run); got != example.want {
				t.Errorf("it prints %q instead of %q", got, example.want)
			}
		})
	}
}

// printed returns what f writes to os.Stdout.
func printed(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = was }()
	f()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sandbox creates one. The caller ends it with remove.
func sandbox(ctx context.Context) (c *client.Client, id string, remove func()) {
	c, err := client.Dial(client.DefaultSocket())
	if err != nil {
		log.Fatal(err)
	}
	sb, err := c.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "agbox-base:dev"}})
	if err == nil {
		sb, err = c.WaitSandbox(ctx, sb.GetSandboxId(), client.Ready)
	}
	if err != nil {
		log.Fatal(err)
	}
	return c, sb.GetSandboxId(), func() {
		if err := errors.Join(c.DeleteSandbox(ctx, sb.GetSandboxId()), c.Close()); err != nil {
			log.Print(err)
		}
	}
}

func ExampleClient_Command() {
	ctx := context.Background()
	c, id, remove := sandbox(ctx)
	defer remove()

	out, err := c.Command(ctx, id, "echo", "hello").Output()
	if err != nil {
		log.Print(err)
	}
	fmt.Print(string(out))

	_, err = c.Command(ctx, id, "sh", "-c", "echo no such table >&2; exit 3").Output()
	if exit, ok := errors.AsType[*client.ExitError](err); ok {
		fmt.Printf("exit code %d: %s", exit.ExitCode(), exit.Stderr)
	}
}

// Run passes a reader to the standard input of the command.
func ExampleCmd_Run() {
	ctx := context.Background()
	c, id, remove := sandbox(ctx)
	defer remove()

	cmd := c.Command(ctx, id, "sh", "-c", "cd $WHERE && wc -l | tr -d ' '")
	cmd.Env = map[string]string{"WHERE": "/tmp"}
	cmd.Stdin = strings.NewReader("one\ntwo\nthree\n")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		log.Print(err)
	}
}

// Start and pipes talk with a command that runs.
func ExampleCmd_Start() {
	ctx := context.Background()
	c, id, remove := sandbox(ctx)
	defer remove()

	cmd := c.Command(ctx, id, "tr", "a-z", "A-Z")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		log.Print(err)
		return
	}
	fmt.Fprintln(in, "hello")
	fmt.Fprintln(in, "world")
	in.Close()
	if _, err := io.Copy(os.Stdout, out); err != nil {
		log.Print(err)
	}
	if err := cmd.Wait(); err != nil {
		log.Print(err)
	}
}

// The end of the context cancels the command.
func ExampleCmd_Wait() {
	ctx := context.Background()
	c, id, remove := sandbox(ctx)
	defer remove()

	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	cmd := c.Command(short, id, "sleep", "1000")
	if err := cmd.Start(); err != nil {
		log.Print(err)
		return
	}
	fmt.Printf("%v, %v\n", cmd.Wait(), cmd.Status.GetState())
}

// FS makes the functions of io/fs work on the files of a sandbox.
func ExampleClient_FS() {
	ctx := context.Background()
	c, id, remove := sandbox(ctx)
	defer remove()

	dir := os.TempDir() + "/agbox-example-" + id
	if _, err := c.WriteFile(ctx, &agboxv1.WriteFileStart{SandboxId: id, Path: dir + "/config.json", MakeParents: true}, strings.NewReader("{}")); err != nil {
		log.Print(err)
	}
	files, err := fs.Sub(c.FS(ctx, id, ""), dir[1:])
	if err != nil {
		log.Print(err)
	}
	_ = fs.WalkDir(files, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		fmt.Println(path, string(data))
		return err
	})
	if err := c.RemoveFile(ctx, &agboxv1.RemoveRequest{SandboxId: id, Path: dir, Recursive: true}); err != nil {
		log.Print(err)
	}
}
