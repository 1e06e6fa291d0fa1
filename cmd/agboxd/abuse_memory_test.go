package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// peak returns the peak memory of the daemon, in bytes.
func (a *abused) peak() int64 {
	a.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.pid))
	if err != nil {
		a.Fatal(err)
	}
	var kib int64
	_, line, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(line, &kib); err != nil {
		a.Fatal(err)
	}
	return kib << 10
}

// hostile is a create request whose spec repeats these bytes, up to just below 4 MiB.
func hostile(unit []byte) *agboxv1.CreateSandboxRequest {
	spec := &agboxv1.CreateSpec{Image: "x"}
	spec.ProtoReflect().SetUnknown(bytes.Repeat(unit, (4<<20-100)/len(unit)))
	return &agboxv1.CreateSandboxRequest{CreateSpec: spec}
}

// TestHugeRequestsTakeLittleMemory sends the most expensive requests, eight at a time, while another client makes small calls.
func TestHugeRequestsTakeLittleMemory(t *testing.T) {
	const parallel, rounds, bound = 8, 2, 512 << 20
	a := startAbused(t, "")
	field := func(n protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), value)
	}
	requests := map[string]*agboxv1.CreateSandboxRequest{
		"empty services":         hostile(field(5, "")),
		"empty mounts":           hostile(field(2, "")),
		"empty labels":           hostile(field(7, "")),
		"empty tools":            hostile(field(4, "")),
		"hooks of one service":   hostile(field(5, string(bytes.Repeat(field(5, ""), 1000)))),
		"lists in YAML":          {ConfigYaml: append([]byte("image: "), bytes.Repeat([]byte("- "), 1<<20-10)...)},
		"flow lists in YAML":     {ConfigYaml: append([]byte("mounts: ["), bytes.Repeat([]byte("{},"), 90_000)...)},
		"one value of YAML":      {ConfigYaml: append([]byte("image: "), bytes.Repeat([]byte("x"), 2<<20-10)...)},
		"comments":               {ConfigYaml: bytes.Repeat([]byte("#\n"), 130_000)},
		"a megabyte of comments": {ConfigYaml: bytes.Repeat([]byte("#\n"), 1<<20-1)},
	}
	if testing.Short() {
		requests = map[string]*agboxv1.CreateSandboxRequest{"empty services": requests["empty services"], "comments": requests["comments"]}
	}
	before := a.peak()
	conn := a.dial()
	defer conn.Close()
	client := agboxv1.NewSandboxServiceClient(conn)
	ctx, stop := context.WithCancel(t.Context())
	var bystander sync.WaitGroup
	var slowest time.Duration
	bystander.Go(func() {
		for ctx.Err() == nil {
			begun := time.Now()
			if err := a.ping(served); err != nil && ctx.Err() == nil {
				t.Errorf("another client: %v", err)
			}
			slowest = max(slowest, time.Since(begun))
		}
	})
	for name, req := range requests {
		begun, was := time.Now(), a.peak()
		var wg sync.WaitGroup
		for range parallel {
			wg.Go(func() {
				for range rounds {
					_, err := client.CreateSandbox(t.Context(), req)
					if c := status.Code(err); c != codes.InvalidArgument || !strings.Contains(err.Error(), " ") {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%s: %s, the peak grows from %d to %d MiB", name, time.Since(begun), was>>20, a.peak()>>20)
	}
	stop()
	bystander.Wait()
	if peak := a.peak(); peak > bound {
		t.Errorf("the daemon took up to %d MiB, %d MiB at its start; want at most %d", peak>>20, before>>20, int64(bound)>>20)
	}
	t.Logf("the slowest call of another client took %s", slowest)
}
