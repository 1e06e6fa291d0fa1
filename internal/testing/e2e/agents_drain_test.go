//go:build docker

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	savingPhase = agboxv1.DrainPhase_DRAIN_PHASE_SAVING
	work        = "run echo half >/workspace/repo/done\n"
)

// gitMounts give a sandbox the host's git, and a bare repository that is returned.
func gitMounts(t *testing.T) (origin string, mounts []*agboxv1.MountSpec) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can give files to the sandbox's user")
	}
	origin = filepath.Join(t.TempDir(), "origin.git")
	script := `git init -q --bare "$0" && chown -R 1000:1000 "$0"` // the user agbox of the image
	if out, err := exec.Command("sh", "-c", script, origin).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return origin, []*agboxv1.MountSpec{
		{Source: "/usr", Target: "/usr"}, {Source: "/usr/lib", Target: "/lib"}, {Source: "/usr/lib64", Target: "/lib64"},
		{Source: origin, Target: "/origin", Writable: true},
	}
}

// commits are the subjects in a repository, the newest first.
func commits(t *testing.T, origin string) string {
	t.Helper()
	out, err := exec.Command("git", "-c", "safe.directory=*", "--git-dir", origin, "log", "--all", "--format=%s", "--name-only").CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

func inRepo(spec *agboxv1.AgentSpec) { spec.WorkingDir = "/workspace/repo" }

// gitCrew is a sandbox with a work tree, and agents that hurry when they are ended.
func gitCrew(t *testing.T, conf string) (c *crew, origin string) {
	t.Helper()
	t.Parallel()
	origin, mounts := gitMounts(t)
	c = newCrew(newDaemon(t, "", "[runtime]\ncancel_grace = \"1s\"\n"+conf), mounts...)
	c.sh(c.box, "git clone -q /origin /workspace/repo")
	return c, origin
}

func TestANudgedAgentCommitsByItself(t *testing.T) {
	c, origin := gitCrew(t, "")
	c.hire("worker", "native", "native", inRepo, func(spec *agboxv1.AgentSpec) {
		spec.Nudge = `run git add -A && git -c user.name=me -c user.email=me@localhost commit -q -m "by itself" && git push -q origin HEAD`
	})
	c.tell("worker", "work", "remember a plum\n"+work+"sleep 1000")
	c.awaitAgent("worker", agentBusy)
	if s := c.drain(&agboxv1.DrainRequest{Wait: seconds(60)}); s.GetParked() != 1 || s.GetSaved()+s.GetNotSaved() != 0 {
		t.Errorf("%v", s)
	}
	if got := commits(t, origin); got != "by itself done" {
		t.Errorf("the origin has %q", got)
	}
	if r := c.result("worker", "work"); r.GetOutcome() != "end_turn" {
		t.Errorf("%v", r)
	}
	must(c.admin().Undrain(c.ctx(), &agboxv1.UndrainRequest{}))(t)
	c.awaitLife("worker", 2)
	if got := c.ask("worker", "asked", "what did I say?"); got != "you said: a plum" {
		t.Errorf("it says %q", got)
	}
}

func TestAStragglersWorkIsSavedForIt(t *testing.T) {
	c, origin := gitCrew(t, "")
	c.hire("worker", "native", "native", inRepo, func(spec *agboxv1.AgentSpec) { spec.Nudge = "echo never" })
	c.tell("worker", "work", "remember a plum\n"+work+"ignore\nsleep 1000")
	c.said("worker", "noted a plum")
	s := c.drain(&agboxv1.DrainRequest{Wait: seconds(0), SaveEach: seconds(20)})
	if a := c.agent("worker"); s.GetSaved() != 1 || a.GetSaved() != "saved" || !a.GetParked() {
		t.Errorf("%v, %v", s, a)
	}
	if got := commits(t, origin); got != "WIP: eviction save done" {
		t.Errorf("the origin has %q", got)
	}
	must(c.admin().Undrain(c.ctx(), &agboxv1.UndrainRequest{}))(t)
	a := c.agentIs("worker", "at it again", func(a *agboxv1.AgentHandle) bool {
		return a.GetState() == agentBusy && a.GetIncarnation() == 2
	})
	if a.GetPromptId() != "work" {
		t.Errorf("it works on %q", a.GetPromptId())
	}
}

// A pre-commit hook that refuses everything, and a branch that others have pushed to: the work goes beside it.
func TestAStragglersWorkIsSavedAgainstHooksAndOthers(t *testing.T) {
	c, origin := gitCrew(t, "")
	c.sh(c.box, `git config --global user.name me && git config --global user.email me@localhost
		cd /workspace/repo && git commit -q --allow-empty -m first && git push -q origin HEAD
		git clone -q /origin /workspace/other && cd /workspace/other && git commit -q --allow-empty -m other && git push -q origin HEAD
		printf '#!/bin/sh\nexit 1\n' >/workspace/repo/.git/hooks/pre-commit && chmod +x /workspace/repo/.git/hooks/pre-commit`)
	c.hire("worker", "native", "native", inRepo)
	c.tell("worker", "work", work+"ignore\necho begun\nsleep 1000")
	c.said("worker", "begun")
	if s := c.drain(&agboxv1.DrainRequest{Wait: seconds(0)}); s.GetSaved() != 1 {
		t.Errorf("%v", s)
	}
	for _, want := range []string{"WIP: eviction save done", "other", "first"} {
		if got := commits(t, origin); !strings.Contains(got, want) {
			t.Errorf("the origin has %q", got)
		}
	}
}

// said waits until an agent has said so.
func (c *crew) said(id, what string) {
	c.Helper()
	c.eventually(id+" says "+what, func() error {
		for _, e := range c.agentEvents(id) {
			p := e.GetPart()
			if strings.Contains(p.GetText(), what) && !strings.HasPrefix(p.GetMessageId(), "prompt.") {
				return nil
			}
		}
		return errors.New("it does not")
	})
}

func TestAStragglerThatWasNudgedIsInterruptedToo(t *testing.T) {
	c := patient(t)
	c.hire("worker", "native", "native", func(spec *agboxv1.AgentSpec) { spec.Nudge = "echo never" })
	c.tell("worker", "work", "ignore nudges\necho begun\nsleep 1000")
	c.said("worker", "begun")
	must(c.admin().Drain(c.ctx(), &agboxv1.DrainRequest{Wait: seconds(1)}))(t)
	c.drained()
	if got := c.moves("worker"); got != "SPAWN/COLD CONNECTED"+aTurn+" DRAIN_PARKED" {
		t.Errorf("%s", got)
	}
}

func (d *daemon) signal(s syscall.Signal) {
	d.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.Fatal(err)
	}
}

// awaitEnd waits for the daemon's end.
func (d *daemon) awaitEnd() {
	d.Helper()
	d.eventually("agboxd ends", func() error {
		select {
		case <-d.done:
			return nil
		default:
			return errors.New("it runs")
		}
	})
	_ = d.conn.Close()
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		d.Errorf("it ended with code %d", code)
	}
}

// logged waits until the daemon has logged something.
func (d *daemon) logged(words string) {
	d.Helper()
	d.eventually("agboxd logs "+words, func() error {
		if !strings.Contains(d.log.tail(1<<30), words) {
			return errors.New("it does not")
		}
		return nil
	})
}

func TestASecondSignalSavesAndAThirdEnds(t *testing.T) {
	t.Parallel()
	for _, signals := range []int{2, 3} {
		t.Run(map[int]string{2: "second", 3: "third"}[signals], func(t *testing.T) {
			c, origin := gitCrew(t, "")
			c.hire("worker", "native", "native", inRepo)
			c.tell("worker", "work", work+"ignore\necho begun\nsleep 6\necho worked")
			c.said("worker", "begun")
			c.signal(syscall.SIGTERM)
			c.logged("agboxd ends once its agents are parked")
			c.signal(syscall.SIGTERM)
			c.logged("saving the work of busy agents now")
			if signals == 3 {
				c.signal(syscall.SIGTERM)
				c.logged("agboxd ends at once")
			}
			c.awaitEnd()
			if got := commits(t, origin); signals == 2 && got != "WIP: eviction save done" {
				t.Errorf("the origin has %q", got)
			}
			c.start()
			c.said("worker", "worked")
		})
	}
}

func TestADetachLeavesAgentsAtTheirWork(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *crew){
		"call": func(c *crew) {
			must(c.admin().Drain(c.ctx(), &agboxv1.DrainRequest{Mode: agboxv1.DrainMode_DRAIN_MODE_DETACH, Exit: true}))(c)
		},
		"signal": func(c *crew) { c.signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrew(newDaemon(t, "", "[drain]\non_sigterm = \"detach\"\n"))
			c.hireAll()
			for _, f := range formats {
				c.tell(f.id, "work", untilReleased+"echo worked")
				c.awaitAgent(f.id, agentBusy)
			}
			end(c)
			c.awaitEnd()
			c.start()
			c.release(c.box)
			for _, f := range formats {
				c.result(f.id, "work")
				if got := c.moves(f.id); got != "SPAWN/COLD CONNECTED"+aTurn {
					t.Errorf("%s: %s", f.id, got)
				}
			}
		})
	}
}
