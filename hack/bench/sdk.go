package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sync/errgroup"
)

// sdkAtOnce is the number of commands at once.
const sdkAtOnce = 20

// sdk is a program of E2B's SDK for JavaScript that carries out operations: hack/e2b/bench.mjs.
type sdk struct {
	in  io.Writer
	out *json.Decoder
}

// do carries out an operation and returns its time and the processor time of the client meanwhile.
func (s *sdk) do(name string) (took, client time.Duration, err error) {
	if _, err := io.WriteString(s.in, name+"\n"); err != nil {
		return 0, 0, err
	}
	var answer struct {
		MS, CPUMS float64
		Error     string
	}
	if err := s.out.Decode(&answer); err != nil {
		return 0, 0, err
	}
	if answer.Error != "" {
		return 0, 0, errors.New(answer.Error)
	}
	milliseconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	return milliseconds(answer.MS), milliseconds(answer.CPUMS), nil
}

// sdkOperation is an operation of the SDK beside what comes nearest to it in the Docker API.
type sdkOperation struct {
	name, what string
	times      int
	bare       func(ctx context.Context, b *bareBox) error
}

func sdkOperations() []sdkOperation {
	write := func(size int) func(context.Context, *bareBox) error {
		data := bytes.Repeat([]byte("x"), size)
		return func(ctx context.Context, b *bareBox) error { return b.write(ctx, "/tmp/file", data) }
	}
	read := func(ctx context.Context, b *bareBox) error {
		_, err := b.read(ctx, "/tmp/file")
		return err
	}
	return []sdkOperation{
		{"create", "Sandbox.create", 1, func(ctx context.Context, b *bareBox) error { return b.create(ctx, b.id) }},
		{"true", "commands.run of true", 5, func(ctx context.Context, b *bareBox) error { return b.exec(ctx, b.id) }},
		{"true-20", fmt.Sprintf("commands.run of true, %d at once", sdkAtOnce), 1, func(ctx context.Context, b *bareBox) error {
			g, ctx := errgroup.WithContext(ctx)
			for range sdkAtOnce {
				g.Go(func() error { return b.exec(ctx, b.id) })
			}
			return g.Wait()
		}},
		{"write-small", "files.write, 1 KiB", 5, write(smallBytes)},
		{"read-small", "files.read, 1 KiB", 5, read},
		{"write-large", "files.write, 8 MiB", 2, write(largeBytes)},
		{"read-large", "files.read, 8 MiB", 2, read},
		{"list-files", "files.list", 5, func(ctx context.Context, b *bareBox) error { return b.run(ctx, b.id, "ls", "-l", "/etc") }},
		{"list", "Sandbox.list", 5, func(ctx context.Context, b *bareBox) error {
			_, err := b.c.ContainerList(ctx, container.ListOptions{})
			return err
		}},
		{"info", "getInfo", 5, func(ctx context.Context, b *bareBox) error {
			_, err := b.c.ContainerInspect(ctx, b.id)
			return err
		}},
		{"pause-connect", "pause and Sandbox.connect", 1, func(ctx context.Context, b *bareBox) error {
			return errors.Join(b.pause(ctx, b.id), b.resume(ctx, b.id))
		}},
		{"kill", "kill", 1, func(ctx context.Context, b *bareBox) error { return b.remove(ctx, b.id) }},
	}
}

// measureSDK measures an unmodified client of the gateway. The first round is not counted: Node compiles the SDK in it.
func measureSDK(ctx context.Context, d *daemon, b *bare, rounds int) (rows []row, err error) {
	if _, err := exec.LookPath("npm"); err != nil {
		fmt.Println("E2B's SDK: left out, as npm is missing")
		return nil, nil
	}
	s, end, err := d.startSDK(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	operations := sdkOperations()
	rows = make([]row, len(operations))
	clients := make([][]time.Duration, len(operations))
	for round := range rounds + 1 {
		progress("round %d of %d of the SDK", round, rounds)
		box := &bareBox{bare: b, id: fmt.Sprintf("bench-%d-sdk-%d", os.Getpid(), round)}
		for i, op := range operations {
			for range op.times {
				took, client, err := s.do(op.name)
				if err == nil && op.name == "kill" { // it returns before the containers are removed, which would slow down the other side
					err = d.gone(ctx)
				}
				if err != nil {
					return nil, fmt.Errorf("%s: %w", op.what, err)
				}
				start := time.Now()
				if err := op.bare(ctx, box); err != nil {
					return nil, fmt.Errorf("%s with bare Docker: %w", op.what, err)
				}
				if round > 0 {
					rows[i].agbox, rows[i].bare = append(rows[i].agbox, took), append(rows[i].bare, time.Since(start))
					clients[i] = append(clients[i], client)
				}
			}
		}
	}
	progressEnds()
	for i, op := range operations {
		rows[i].what = fmt.Sprintf("%s (CPU time of Node %s)", op.what, at(clients[i], 50))
	}
	return rows, nil
}

// gone waits until the daemon has no sandbox of a gateway.
func (d *daemon) gone(ctx context.Context) error {
	return poll(ctx, 10*time.Millisecond, func(ctx context.Context) (bool, error) {
		list, err := d.GatewaySandboxes(ctx, "default")
		return len(list) == 0, err
	})
}

// startSDK installs the SDK and starts its program as a client of the daemon. end returns once that has ended.
func (d *daemon) startSDK(ctx context.Context) (s *sdk, end func() error, err error) {
	install := exec.CommandContext(ctx, "hack/e2b.sh")
	install.Stderr = os.Stderr
	dir, err := install.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("hack/e2b.sh: %w", err)
	}
	key, err := d.CreateGatewayKey(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	ping, err := d.Ping(ctx)
	if err != nil {
		return nil, nil, err
	}
	url := "http://" + ping.GetGateways()["e2b"]
	node := exec.CommandContext(ctx, "node", filepath.Join(strings.TrimSpace(string(dir)), "bench.mjs"))
	node.Env = append(os.Environ(), "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "E2B_API_KEY=e2b_"+key.GetKey())
	node.Stderr = os.Stderr
	in, inErr := node.StdinPipe()
	out, outErr := node.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, nil, err
	}
	end = func() error { return errors.Join(in.Close(), node.Wait()) }
	return &sdk{in, json.NewDecoder(out)}, end, node.Start()
}
