//go:build docker

package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/host/shimdir"
)

// cost is what the daemon uses: resident memory in bytes, open descriptors, and the time of its processor since its start.
type cost struct {
	memory, descriptors int
	cpu                 time.Duration
}

func (d *daemon) cost() (c cost) {
	d.Helper()
	dir := fmt.Sprintf("/proc/%d/", d.cmd.Process.Pid)
	for line := range strings.Lines(d.read(dir + "status")) {
		if f := strings.Fields(line); f[0] == "VmRSS:" {
			c.memory = must(strconv.Atoi(f[1]))(d) << 10
		}
	}
	c.descriptors = len(must(os.ReadDir(dir + "fd"))(d))
	_, stat, _ := strings.Cut(d.read(dir+"stat"), ") ")
	for _, ticks := range strings.Fields(stat)[11:13] {
		c.cpu += time.Duration(must(strconv.Atoi(ticks))(d)) * 10 * time.Millisecond
	}
	return c
}

// typical returns the median time of an operation.
func typical(op func()) time.Duration {
	var all []time.Duration
	for range 15 {
		start := time.Now()
		op()
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// TestAHostilePID1CostsItsOwnSandboxOnly: PID 1 is the one process of a sandbox that agboxd accepts. It reconnects, holds connections, forges
// tokens, sends frames that are too large or that were not requested, and stalls or floods the streams that clients open.
func TestAHostilePID1CostsItsOwnSandboxOnly(t *testing.T) {
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.program, d.http = filepath.Join(d.home, "agboxd"), freeAddress(t)
	for from, to := range map[string]string{"agboxd": d.program, "hostilepid1": filepath.Join(d.home, shimdir.Name)} {
		must(0, os.Link(filepath.Join(binaries, from), to))(t)
	}
	d.start()
	peaceful := d.create(nil)
	d.await(peaceful, ready)
	c := d.connect()
	execs := func() time.Duration { return typical(func() { d.sh(peaceful, "true") }) }
	files := func() time.Duration {
		return typical(func() {
			must(c.WriteFile(d.ctx(), &agboxv1.WriteFileStart{SandboxId: peaceful, Path: "/tmp/f"}, strings.NewReader("x")))(t)
		})
	}
	quietExecs, quietFiles, before := execs(), files(), d.cost()
	connections := d.create(&agboxv1.CreateSpec{Envs: map[string]string{"HOSTILE": "connections"}})
	streams := d.create(&agboxv1.CreateSpec{Envs: map[string]string{"HOSTILE": "streams"}})
	d.await(connections, ready)
	d.await(streams, ready)
	cat := d.withStdin(streams, &agboxv1.StdinSpec{}, "cat")
	d.eventually("the attack has begun", func() error {
		if dropped := d.drops(); len(dropped) < 3 {
			return fmt.Errorf("dropped so far: %v", dropped)
		}
		return nil
	})
	// Clients of the hostile sandboxes fail or wait until they give up.
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var failed atomic.Int64
	call := func(op func(ctx context.Context) error) {
		clients.Go(func() {
			for ctx.Err() == nil {
				one, stop := context.WithTimeout(ctx, 2*time.Second)
				if err := op(one); err != nil && one.Err() == nil {
					switch client.Code(err) {
					case codes.DeadlineExceeded: // by the clock of agboxd, which knows the client's deadline
					case codes.Unavailable, codes.FailedPrecondition, codes.InvalidArgument:
						failed.Add(1)
					default:
						t.Errorf("a client of a hostile sandbox: %v", err)
					}
				}
				stop()
			}
		})
	}
	for i := range 20 {
		call(func(ctx context.Context) error {
			id := connections
			if i%2 == 0 {
				id = streams
			}
			f, err := c.OpenFile(ctx, &agboxv1.ReadFileRequest{SandboxId: id, Path: "/etc/passwd"})
			if err != nil {
				return err
			}
			defer f.Close()
			if i%4 < 2 {
				<-ctx.Done() // with the file unread
				return nil
			}
			_, err = io.Copy(io.Discard, f)
			return err
		})
	}
	for range 5 {
		call(func(ctx context.Context) error {
			_, err := c.Attach(ctx, cat, client.AttachOptions{Stdin: pseudoRandom(1 << 40), Stdout: io.Discard, TakeOver: true})
			return err
		})
	}
	begun, started := d.cost(), time.Now()
	underAttack := []time.Duration{execs(), files()}
	var most cost
	for time.Since(started) < 10*time.Second {
		now := d.cost()
		most.memory, most.descriptors, most.cpu = max(most.memory, now.memory), max(most.descriptors, now.descriptors), now.cpu
		time.Sleep(50 * time.Millisecond)
	}
	load := float64(most.cpu-begun.cpu) / float64(time.Since(started))
	t.Logf("execs took %v, under attack %v; writes %v, and %v", quietExecs, underAttack[0], quietFiles, underAttack[1])
	if failed.Load() == 0 {
		t.Error("no client of a hostile sandbox has failed")
	}
	t.Logf("before %+v, most %+v: %.2f of a core; %d clients failed; dropped: %v", before, most, load, failed.Load(), d.drops())
	if underAttack[0] > 10*quietExecs+time.Second || underAttack[1] > 10*quietFiles+time.Second {
		t.Error("another sandbox is slow")
	}
	// 256 connections whose Hello is awaited, and the streams of 25 clients; the memory is that of a program with the race detector.
	if grown := most.descriptors - before.descriptors; most.descriptors > 500 {
		t.Errorf("%d more descriptors, %d in all", grown, most.descriptors)
	}
	if grown := most.memory - before.memory; grown > 200<<20 {
		t.Errorf("%d MiB more memory", grown>>20)
	}
	cancel()
	clients.Wait()
	d.remove(connections)
	d.remove(streams)
	t.Parallel() // nothing is measured from here on, and connections that are idle are kept for 90 s
	d.dying = patience
	d.eventually("the daemon has let go of it", func() error {
		if now := d.cost(); now.descriptors > before.descriptors {
			return fmt.Errorf("%d descriptors, and %d before", now.descriptors, before.descriptors)
		}
		return nil
	})
	d.remove(peaceful)
}

// drops returns the counters of ended connections that are not zero.
func (d *daemon) drops() map[string]string {
	d.Helper()
	found := map[string]string{}
	_, body, err := d.page("/metrics")
	if err != nil {
		d.Fatal(err)
	}
	for line := range strings.Lines(body) {
		if name, n, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "agboxd_channel_dropped_total{") && n != "0" {
			found[name] = n
		}
	}
	return found
}
