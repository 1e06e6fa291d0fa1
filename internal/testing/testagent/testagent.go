package testagent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// Config is what a process is given.
type Config struct {
	// Args are "native", "claude" or "acp", and the flags that Claude's command line gets.
	Args []string
	In   io.Reader
	Out  io.Writer
	// Sessions is where sessions are kept, one file each.
	Sessions string
}

// input is a line of stdin, understood.
type input struct {
	kind inputKind
	// id is of the request, text of a prompt.
	id, text string
	allowed  bool
	// number counts prompts from 1.
	number int
}

type inputKind int

const (
	nothing inputKind = iota
	prompt
	interrupt
	permission
)

// voice is one format.
type voice interface {
	// hello is said before anything is read. A code other than 0 ends the process.
	hello() (code int)
	// read understands a line. It may answer what needs no turn.
	read(line []byte) input
	// begin and end frame a turn.
	begin(in input)
	end(in input, interrupted bool)
	// say is one part of a message.
	say(text string)
	checkpoint(text string)
	// ask asks for permission; without a question it returns false.
	ask() bool
}

// agent is one process.
type agent struct {
	cfg  Config
	out  *writer
	mind *mind

	mu       sync.Mutex
	deaf     bool // to nudges
	stubborn bool
	heard    int // prompts so far
	stopped  int // the newest prompt when an interrupt came
	allowed  chan bool
	prompts  chan input
	ended    chan int
}

// The methods of voice that a format without words of its own for them shares.

func (a *agent) hello() int { return 0 }

func (a *agent) begin(input) {}

func (a *agent) ask() bool { return true }

// checkpoint goes by the outbox.
func (a *agent) checkpoint(text string) {
	_ = exec.Command("/run/agbox/bin/agbox-shim", "checkpoint", text).Run()
}

func (a *agent) tell(v any) {
	if b, err := json.Marshal(v); err == nil {
		_, _ = a.out.Write(append(b, '\n'))
	}
}

// Run is the process. It returns the code to exit with: 0 at the end of stdin, and of SIGUSR1.
func Run(cfg Config) int {
	a := &agent{
		cfg: cfg, out: &writer{w: cfg.Out}, mind: &mind{dir: cfg.Sessions},
		allowed: make(chan bool, 1), prompts: make(chan input, 64), ended: make(chan int, 1),
	}
	v, err := a.voice()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if code := v.hello(); code != 0 {
		return code
	}
	leave := make(chan os.Signal, 1)
	signal.Notify(leave, syscall.SIGUSR1)
	defer signal.Stop(leave)
	go a.work(v)
	go a.listen(v)
	select {
	case code := <-a.ended:
		return code
	case <-leave:
		return 0
	}
}

func (a *agent) voice() (voice, error) {
	if len(a.cfg.Args) == 0 {
		return nil, fmt.Errorf("no format")
	}
	switch format := a.cfg.Args[0]; format {
	case "native":
		return &native{a}, nil
	case "claude":
		return newClaude(a, a.cfg.Args[1:]), nil
	case "acp":
		return &acpVoice{agent: a}, nil
	default:
		return nil, fmt.Errorf("unknown format %q", format)
	}
}

// listen reads stdin to its end, which is the process's.
func (a *agent) listen(v voice) {
	r := bufio.NewReaderSize(a.cfg.In, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			a.hear(v.read(line))
		}
		if err != nil {
			a.end(0)
			return
		}
	}
}

func (a *agent) hear(in input) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch in.kind {
	case prompt:
		a.heard++
		in.number = a.heard
		a.prompts <- in
	case interrupt:
		a.stopped = a.heard // also before the turn has begun
	case permission:
		offer(a.allowed, in.allowed)
	}
}

func offer[T any](c chan T, v T) {
	select {
	case c <- v:
	default:
	}
}

func (a *agent) end(code int) { offer(a.ended, code) }

// work does one prompt after the other.
func (a *agent) work(v voice) {
	for in := range a.prompts {
		v.begin(in)
		t := &turn{agent: a, voice: v, number: in.number}
		if t.do(a.mind.hear(in.text)) {
			v.end(in, t.interrupted)
		}
	}
}

// ignore makes it deaf to nudges, or to all that would end a turn.
func (a *agent) ignore(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deaf = true
	if what != "nudges" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		a.stubborn = true
	}
}

func (a *agent) ignores() (deaf, stubborn bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.deaf, a.stubborn
}

// isStopped reports whether a turn was interrupted.
func (a *agent) isStopped(number int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stopped >= number
}

// writer writes whole lines.
type writer struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}
