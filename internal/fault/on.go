//go:build faults

package fault

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
)

// Names of the files in the directory named by EnvDir. Each holds one entry per line and is only appended to.
const (
	// PlanFile has one fault per line: "POINT kill", "POINT error" or "POINT delay DURATION". Each happens once, when any process first
	// reaches the point.
	PlanFile = "plan"
	// DoneFile holds the points whose action happened. The line is written before the action, so a kill happens once.
	DoneFile = "done"
	// HitFile holds the points that were reached, each once per process.
	HitFile = "hit"
)

// ErrInjected is the error of an armed point. Its class is errdefs.ErrUnavailable: an unknown outcome.
var ErrInjected = fmt.Errorf("injected by a failpoint: %w", errdefs.ErrUnavailable)

var points = struct {
	mu    sync.Mutex
	once  sync.Once
	dir   string
	armed map[string]func() error // actions for the next hit, by point
	hit   map[string]bool         // points that this process reached
}{armed: map[string]func() error{}, hit: map[string]bool{}}

// Points are the failpoints of operations that happen together, such as requests that share a commit: what happens at one of them happens at
// all. It returns the errors of their armed actions.
func Points(kind, when string, ops iter.Seq[string]) error {
	points.once.Do(func() { points.dir = os.Getenv(EnvDir); load(points.dir) })
	var acts []func() error
	points.mu.Lock()
	for op := range ops {
		point := kind + "." + op + "." + when
		if !points.hit[point] {
			points.hit[point] = true
			note(HitFile, point)
		}
		if act := points.armed[point]; act != nil {
			delete(points.armed, point)
			note(DoneFile, point)
			acts = append(acts, act)
		}
	}
	points.mu.Unlock()
	var errs []error
	for _, act := range acts {
		errs = append(errs, act())
	}
	return errors.Join(errs...)
}

// Around calls f between the two points of an operation. After an error at the first point it does not call f; an error at the second point
// is joined with the result of f, as if the reply was lost.
func Around(kind, op string, f func() error) error {
	one := slices.Values([]string{op})
	if err := Points(kind, Before, one); err != nil {
		return err
	}
	err := f()
	return errors.Join(Points(kind, After, one), err)
}

// load arms the plan's faults that have not happened yet.
func load(dir string) {
	if dir == "" {
		return
	}
	done := map[string]bool{}
	for _, line := range lines(filepath.Join(dir, DoneFile)) {
		done[line] = true
	}
	for _, line := range lines(filepath.Join(dir, PlanFile)) {
		words := strings.Fields(line)
		if len(words) < 2 || done[words[0]] {
			continue
		}
		points.armed[words[0]] = action(words[1:])
	}
}

func action(words []string) func() error {
	switch words[0] {
	case "kill":
		return func() error {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // waits for the signal
		}
	case "error":
		return func() error { return ErrInjected }
	case "delay":
		if len(words) == 2 {
			if d, err := time.ParseDuration(words[1]); err == nil {
				return func() error { time.Sleep(d); return nil }
			}
		}
	}
	panic(fmt.Sprintf("%s: unknown action %q", PlanFile, words))
}

func lines(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// note appends a line to a file. It panics on an error, because a test must not continue without that line.
func note(file, point string) {
	if points.dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(points.dir, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(point + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		panic(err)
	}
}

// Caller returns the name of the outermost exported method of a type, such as "(*Store)", on the stack of the caller.
func Caller(receiver string) string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	name := ""
	for {
		f, more := frames.Next()
		if _, rest, ok := strings.Cut(f.Function, receiver+"."); ok {
			if method, _, _ := strings.Cut(rest, "."); method != "" && method[0] >= 'A' && method[0] <= 'Z' {
				name = method
			}
		}
		if !more {
			return name
		}
	}
}
