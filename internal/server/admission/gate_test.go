package admission

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func gate() *Gate {
	return New(Limits{Request: 1 << 20, Total: 1 << 20, Free: 4 << 10, Waiting: 1 << 10, Patience: time.Minute})
}

// prompt is a request that costs about three quarters of the budget.
func prompt(t *testing.T, size int) []byte {
	t.Helper()
	b, err := proto.Marshal(&agboxv1.CreateSandboxRequest{ConfigYaml: make([]byte, size)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(ctx context.Context, g *Gate, b []byte) (*incoming, error) {
	in := &incoming{ctx: ctx, gate: g, message: &agboxv1.CreateSandboxRequest{}}
	return in, in.read(b)
}

func TestLargeRequestsWaitForMemoryAndSmallOnesDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, large := gate(), prompt(t, 200<<10)
		g.limits.Waiting = 1 << 20
		first, err := read(t.Context(), g, large)
		if err != nil {
			t.Fatal(err)
		}
		waited := make(chan error)
		go func() {
			second, err := read(t.Context(), g, large)
			second.release()
			waited <- err
		}()
		synctest.Wait()
		if _, err := read(t.Context(), g, prompt(t, 100)); err != nil {
			t.Errorf("a small one: %v", err)
		}
		select {
		case err := <-waited:
			t.Fatalf("the second did not wait: %v", err)
		default:
		}
		first.release()
		first.release() // once
		if err := <-waited; err != nil {
			t.Errorf("the second: %v", err)
		}
	})
}

func TestAWaitEndsWithTheDeadlineOrThePatienceAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, large := gate(), prompt(t, 200<<10)
		if _, err := read(t.Context(), g, large); err != nil {
			t.Fatal(err)
		}
		if _, err := read(t.Context(), g, large); !errors.Is(err, ErrBusy) {
			t.Errorf("more than may wait: %v", err)
		}
		g.limits.Waiting = 1 << 20
		for name, want := range map[string]time.Duration{"its deadline": time.Second, "the patience": time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			if name == "its deadline" {
				ctx, cancel = context.WithTimeout(t.Context(), want)
			}
			begun := time.Now()
			if _, err := read(ctx, g, large); !errors.Is(err, ErrBusy) || time.Since(begun) != want {
				t.Errorf("%s: %v after %s", name, err, time.Since(begun))
			}
			cancel()
		}
		if n := g.waiting.Load(); n != 0 {
			t.Errorf("%d bytes still wait", n)
		}
	})
}

// FuzzCost weighs any bytes without a panic, and admitted ones decode as before.
func FuzzCost(f *testing.F) {
	f.Add(protowire.AppendTag(nil, 1, protowire.BytesType))
	f.Add([]byte{0x0b, 0x0b, 0x0b})
	whole, _ := proto.Marshal(&agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{
		Image: "x", Labels: map[string]string{"a": "b"}, RequiredServices: []*agboxv1.ServiceSpec{{Name: "s"}},
	}})
	f.Add(whole)
	f.Fuzz(func(t *testing.T, b []byte) {
		want := &agboxv1.CreateSandboxRequest{}
		wantErr := proto.Unmarshal(b, want)
		in, err := read(t.Context(), gate(), b)
		var costly *TooCostly
		if errors.As(err, &costly) {
			return
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%v, by itself %v", err, wantErr)
		}
		if err == nil && !proto.Equal(want, in.message) {
			t.Fatalf("%v, by itself %v", in.message, want)
		}
	})
}
