package acp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// talk runs a client between an inbox and an agent, which is a function of its stdin and stdout.
func talk(t *testing.T, o Options, inbox io.Reader, agent func(stdin *bufio.Scanner, stdout io.Writer)) (log string, err error) {
	t.Helper()
	stdin, toAgent := io.Pipe()
	fromAgent, stdout := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer stdout.Close()
		lines := bufio.NewScanner(stdin)
		lines.Buffer(nil, 1<<20)
		agent(lines, stdout)
		for lines.Scan() { // until the client closes it
		}
	}()
	var b bytes.Buffer
	err = Run(o, inbox, toAgent, fromAgent, &b)
	fromAgent.Close()
	<-done
	return b.String(), err
}

func TestRunRelaysUntilTheAgentExits(t *testing.T) {
	inbox, daemon := io.Pipe()
	defer inbox.Close()
	var heard []string
	log, err := talk(t, Options{Cwd: "/w"}, inbox, func(stdin *bufio.Scanner, stdout io.Writer) {
		hear := func() {
			if stdin.Scan() {
				heard = append(heard, stdin.Text())
			}
		}
		hear()
		fmt.Fprintln(stdout, initialized)
		hear()
		fmt.Fprintln(stdout, created)
		fmt.Fprintln(daemon, `{"type":"prompt","text":"hello"}`)
		hear()
		fmt.Fprintln(stdout, `{"jsonrpc":"2.0","id":10,"result":{"stopReason":"end_turn"}}`)
		daemon.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`"initialize"`, `"session/new"`, `"session/prompt"`}
	for i, words := range want {
		if len(heard) != len(want) || !strings.Contains(heard[i], words) {
			t.Fatalf("the agent heard %q", heard)
		}
	}
	if strings.Count(log, "\n") != 3 || !strings.HasPrefix(log, initialized+"\n") {
		t.Errorf("the log is %q", log)
	}
}

func TestRunReturnsErrSession(t *testing.T) {
	inbox, daemon := io.Pipe()
	defer daemon.Close()
	log, err := talk(t, Options{Load: "old"}, inbox, func(_ *bufio.Scanner, stdout io.Writer) {
		fmt.Fprintln(stdout, `{"jsonrpc":"2.0","id":2,"result":{}}`)
	})
	if !errors.Is(err, ErrSession) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log, `"id":2`) {
		t.Errorf("the response that the decoder needs is not in the log: %q", log)
	}
}

func TestTooLongLineIsLoggedAndSkipped(t *testing.T) {
	long := strings.Repeat("x", MaxLine+1)
	log, err := talk(t, Options{}, strings.NewReader(""), func(_ *bufio.Scanner, stdout io.Writer) {
		fmt.Fprintln(stdout, long)
		fmt.Fprint(stdout, "no newline at the end")
	})
	if want := long + "\nno newline at the end"; err != nil || log != want {
		t.Errorf("%d bytes are logged of %d: %v", len(log), len(want), err)
	}
}

func TestLongLinesBetweenShortOnes(t *testing.T) {
	var got []int
	in := "a\n" + strings.Repeat("b", MaxLine) + "\ncc\n" + strings.Repeat("d", 200<<10) + "\n\ne"
	err := eachLine(strings.NewReader(in), func(line []byte) error {
		got = append(got, len(line))
		return nil
	})
	if err != nil || fmt.Sprint(got) != fmt.Sprint([]int{1, 2, 200 << 10, 0}) {
		t.Errorf("lines of %v: %v", got, err)
	}
}

func TestAgentThatDoesNotReadIsAnError(t *testing.T) {
	q := newQueue()
	var err error
	for range 2 * maxUnread >> 20 {
		err = errors.Join(err, q.put(make([]byte, 1<<20)))
	}
	if !errors.Is(err, errUnread) || len(q.data) > maxUnread {
		t.Errorf("%d bytes wait: %v", len(q.data), err)
	}
}

func TestAgentWithClosedStdinIsReadToTheEnd(t *testing.T) {
	fromAgent, stdout := io.Pipe()
	go func() {
		defer stdout.Close()
		for range 100 {
			fmt.Fprintln(stdout, permission(`{"optionId":"a","kind":"allow_once"}`))
		}
	}()
	var log bytes.Buffer
	err := Run(Options{}, strings.NewReader(""), &shut{}, fromAgent, &log)
	if err != nil || strings.Count(log.String(), "\n") != 100 {
		t.Errorf("%d lines: %v", strings.Count(log.String(), "\n"), err)
	}
}

func TestAgentThatNeverReadsDoesNotBlockTheEnd(t *testing.T) {
	_, toAgent := io.Pipe()
	agent := strings.NewReader(`{"jsonrpc":"2.0","id":1,"error":{"message":"no"}}` + "\n")
	if err := Run(Options{}, strings.NewReader(""), toAgent, agent, io.Discard); !errors.Is(err, ErrSession) {
		t.Errorf("got %v", err)
	}
}

// shut is a writer that accepts nothing.
type shut struct{}

func (*shut) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (*shut) Close() error              { return nil }
