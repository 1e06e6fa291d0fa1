package execjournal

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// agentNews runs WatchAgents until the test ends.
func agentNews(t *testing.T, d *Dir) <-chan string {
	t.Helper()
	news := make(chan string, 10_000)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- d.WatchAgents(ctx, func(sandboxID, execID string) { news <- sandboxID + " " + execID })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	expectNews(t, news, " ")
	return news
}

func expectNews(t *testing.T, news <-chan string, want string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case got := <-news:
			if got == want {
				return
			}
		case <-timeout:
			t.Fatalf("%q was not told", want)
		}
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString(text)
	must(t, err)
}

func TestWatchAgentsNotifiesOfWrites(t *testing.T) {
	d, p := newDir(t)
	must(t, d.AddAgentWatch("box1", "before.1"))
	news := agentNews(t, d)
	for _, id := range []string{"a.1", "b.1"} {
		must(t, d.AddAgentWatch("box1", id))
		must(t, d.AddAgentWatch("box1", id))
	}
	for _, id := range []string{"before.1", "a.1", "b.1"} {
		for _, path := range []string{
			filepath.Join(p.Logs, StdoutName(id)), filepath.Join(p.Out, AgentsDir, WordsName(id)),
		} {
			for range 3 { // it is created, and then it grows
				appendTo(t, path, "x\n")
				expectNews(t, news, "box1 "+id)
			}
			must(t, os.Rename(path, path+".old"))
			for range 2 { // another file
				appendTo(t, path, "x\n")
				expectNews(t, news, "box1 "+id)
			}
		}
	}
	if err := d.WatchAgents(context.Background(), func(string, string) {}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a second one: %v", err)
	}
}

// The exec b.1 is a barrier: earlier notifications have arrived when its own does.
func TestWatchAgentsNotifiesOfNothingElse(t *testing.T) {
	d, p := newDir(t)
	must(t, d.AddAgentWatch("box1", "a.1"))
	must(t, d.AddAgentWatch("box1", "b.1"))
	news := agentNews(t, d)
	mark := func(allowed string) {
		t.Helper()
		appendTo(t, filepath.Join(p.Logs, StdoutName("b.1")), "x")
		for got := range news {
			if got == "box1 b.1" {
				return
			}
			if got != allowed {
				t.Errorf("%q was told", got)
			}
		}
	}
	quiet := func() { mark("") }
	for _, name := range []string{"e1.stdout.log", "e1.stdout.log", "a.1.stderr.log", "a.1.lock", "a.1.journal", "x"} {
		appendTo(t, filepath.Join(p.Logs, name), "x")
	}
	appendTo(t, filepath.Join(p.Out, AgentsDir, "c.1.words"), "x")
	quiet()
	outbox := filepath.Join(p.Out, AgentsDir, WordsName("a.1"))
	appendTo(t, outbox, "x")
	expectNews(t, news, "box1 a.1")
	mark("box1 a.1") // the file and its content are two changes, seen by one or two reads
	mark("box1 a.1") // those of one read arrive in any order
	d.DropAgentWatch("box1", "a.1")
	d.DropAgentWatch("box1", "a.1")
	appendTo(t, outbox, "x")
	must(t, os.Remove(outbox))
	appendTo(t, outbox, "x")
	quiet()
}

func TestWatchAgentsWithHostileFiles(t *testing.T) {
	d, p := newDir(t)
	news := agentNews(t, d)
	must(t, d.AddAgentWatch("box1", "a.1"))
	dir := filepath.Join(p.Out, AgentsDir)
	must(t, syscall.Mkfifo(filepath.Join(dir, WordsName("a.1")), 0o666))
	expectNews(t, news, "box1 a.1")
	must(t, os.RemoveAll(dir))
	must(t, os.Symlink("/", dir))
	must(t, d.AddAgentWatch("box1", "a.1"))
	must(t, d.AddAgentWatch("box1", "b.1"))
	appendTo(t, filepath.Join(p.Logs, StdoutName("a.1")), "x")
	expectNews(t, news, "box1 a.1")
	must(t, os.RemoveAll(filepath.Dir(p.Logs)))
	must(t, d.Remove("box1"))
	if err := d.AddAgentWatch("box1", "a.1"); !errdefs.IsNotFound(err) {
		t.Errorf("after the removal: %v", err)
	}
}

// A program that prints continuously wakes the daemon some hundred times a second, not for each write.
func TestWatchAgentsBatchesAFlood(t *testing.T) {
	d, p := newDir(t)
	must(t, d.AddAgentWatch("box1", "a.1"))
	path := filepath.Join(p.Logs, StdoutName("a.1"))
	appendTo(t, path, "x\n")
	news := agentNews(t, d)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer f.Close()
	begin := time.Now()
	for range 50_000 {
		_, err := f.WriteString("x")
		must(t, err)
	}
	expectNews(t, news, "box1 a.1")
	if most := int(time.Since(begin)/agentPause) + 2; len(news) > most {
		t.Errorf("%d notifications in %v", len(news), time.Since(begin))
	}
}

// A slow disk may delay the watches of agents, but no exec.
func TestStartAndCancelWaitForNoAgentWatch(t *testing.T) {
	d, _ := newDir(t)
	d.agentMu.Lock()
	defer d.agentMu.Unlock()
	must(t, d.AddWatch("box1"))
	must(t, d.Start("box1", Request{ExecID: "e1", Nonce: testNonce, Command: []string{"true"}}))
	must(t, d.Cancel("box1", "e1", testNonce))
}
