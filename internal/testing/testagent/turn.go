package testagent

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// turn is the work on one prompt.
type turn struct {
	*agent
	voice       voice
	number      int
	interrupted bool
	// nudged: another prompt came in the middle of the turn, which is part of it.
	nudged bool
}

// do obeys a prompt. It returns false when the turn never ends.
func (t *turn) do(text string) bool {
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !t.obey(word, rest) {
			return false
		}
		if t.interrupted {
			return true
		}
		if t.nudged {
			t.nudged = false
			more := <-t.prompts
			t.number = more.number
			return t.do(t.mind.hear(more.text))
		}
	}
	return true
}

func (t *turn) obey(word, rest string) bool {
	switch word {
	case "exit":
		code, _ := strconv.Atoi(rest)
		t.end(code)
		return false
	case "crash":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		return false
	case "remember":
		t.voice.say("noted " + rest)
	case "what":
		t.voice.say(t.mind.answer())
	case "pid":
		t.voice.say(fmt.Sprint("pid ", os.Getpid()))
	case "echo":
		t.voice.say(rest)
	case "count":
		t.count(rest)
	case "sleep":
		t.pause(seconds(rest))
	case "ignore":
		t.ignore(rest)
	case "ask":
		t.voice.say(fmt.Sprint("allowed: ", t.voice.ask()))
	case "checkpoint":
		t.voice.checkpoint(rest)
	case "run":
		t.voice.say(run(rest))
	case "raw":
		t.raw(rest)
	case "flood":
		t.flood(rest)
	default:
		t.voice.say("I don't know how to " + word)
	}
	return true
}

func (t *turn) count(rest string) {
	number, pause, _ := strings.Cut(rest, " ")
	n, _ := strconv.Atoi(number)
	ms, _ := strconv.Atoi(pause)
	for i := range n {
		t.voice.say(fmt.Sprint(i+1, "\n"))
		if ms > 0 && !t.pause(time.Duration(ms)*time.Millisecond) {
			return
		}
	}
}

// pause works for so long; false: something ended it.
func (t *turn) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	deaf, stubborn := t.ignores()
	for {
		select {
		case <-timer.C:
			return true
		case <-poll.C:
			if t.interrupted = t.isStopped(t.number) && !stubborn; t.interrupted {
				return false
			}
			if t.nudged = len(t.prompts) > 0 && !deaf; t.nudged {
				return false
			}
		}
	}
}

func seconds(text string) time.Duration {
	n, _ := strconv.ParseFloat(text, 64)
	return time.Duration(n * float64(time.Second))
}

func run(script string) string {
	out, err := exec.Command("sh", "-c", script).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		text += " (" + err.Error() + ")"
	}
	return text
}

func (t *turn) raw(rest string) {
	line, err := strconv.Unquote(`"` + rest + `"`)
	if err != nil {
		line = rest
	}
	_, _ = t.out.Write([]byte(line + "\n"))
}

func (t *turn) flood(rest string) {
	mib, _ := strconv.Atoi(rest)
	block := bytes.Repeat([]byte("x"), 1<<20)
	for range mib {
		_, _ = t.out.Write(block)
	}
	_, _ = t.out.Write([]byte("\n"))
}
