package dockerx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/containerd/errdefs"
)

// readPull reads the progress of a pull to its end. An error in it has no status, only text: everything that is said
// after the engine found the image at the registry counts as broken off.
func readPull(stream io.Reader) error {
	for decoder := json.NewDecoder(stream); ; {
		var m struct {
			Detail *struct {
				Message string `json:"message"`
			} `json:"errorDetail"`
		}
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m.Detail != nil {
			return fmt.Errorf("%s: %w", m.Detail.Message, errdefs.ErrUnavailable)
		}
	}
}

// pulls are the pulls under way, by full reference.
type pulls struct {
	ctx    context.Context // ends with the Engine
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	byName map[string]*pull
}

// pull is one of them. image and err are set before done is closed.
type pull struct {
	cancel  context.CancelFunc
	waiters int // guarded by pulls.mu
	done    chan struct{}
	image   Image
	err     error
}

func (p *pulls) init() {
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.byName = map[string]*pull{}
}

// close ends all pulls and waits for them.
func (p *pulls) close() {
	p.cancel()
	p.wg.Wait()
}

// do joins the pull of name, or starts it with run, and waits for its end or that of ctx.
func (p *pulls) do(ctx context.Context, name string, run func(context.Context) (Image, error)) (Image, error) {
	one := p.join(name, run)
	defer p.leave(name, one)
	select {
	case <-one.done:
		return one.image, one.err
	case <-ctx.Done():
		return Image{}, ctx.Err()
	}
}

func (p *pulls) join(name string, run func(context.Context) (Image, error)) *pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.byName[name]
	if one == nil {
		ctx, cancel := context.WithCancel(p.ctx)
		one = &pull{cancel: cancel, done: make(chan struct{})}
		p.byName[name] = one
		p.wg.Go(func() {
			one.image, one.err = run(ctx)
			p.forget(name, one)
			close(one.done)
		})
	}
	one.waiters++
	return one
}

// leave ends a pull that nobody waits for any more. Whoever asks from now on starts another.
func (p *pulls) leave(name string, one *pull) {
	p.mu.Lock()
	one.waiters--
	last := one.waiters == 0
	if last && p.byName[name] == one {
		delete(p.byName, name)
	}
	p.mu.Unlock()
	if last {
		one.cancel()
	}
}

func (p *pulls) forget(name string, one *pull) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byName[name] == one {
		delete(p.byName, name)
	}
}
