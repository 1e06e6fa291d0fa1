package controller_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/internal/host/naming"
)

// auditLog keeps the log of a daemon.
type auditLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *auditLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

type auditLine struct {
	Msg       string
	SandboxID *string `json:"sandbox_id"`
	Step      string
	Reason    string
	Result    string
	ObjectID  string `json:"object_id"`
	Err       string
}

// lines returns the audit lines and checks that each has all required fields.
func (l *auditLog) lines(t *testing.T) (list []auditLine) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	page, err := os.ReadFile("../docs/reference.md") // hack/reference writes it from the constants
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ = bytes.Cut(page, []byte("## Steps and reasons in audit lines"))
	for d := json.NewDecoder(bytes.NewReader(l.buf.Bytes())); d.More(); {
		var line auditLine
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.Msg != "audit" {
			continue
		}
		if !bytes.Contains(page, []byte("| `"+line.Reason+"` |")) {
			t.Errorf("the list of reasons has no %q: %+v", line.Reason, line)
		}
		if line.SandboxID == nil || line.Step == "" || line.Result != "ok" && (line.Result != "error" || line.Err == "") {
			t.Errorf("something is missing: %+v", line)
		}
		list = append(list, line)
	}
	return list
}

// auditedLife takes a sandbox through every cause of an action on the engine.
func (p *player) auditedLife(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(p.dir+"/file", []byte("copied"), 0o600); err != nil {
		t.Fatal(err)
	}
	db := &agboxv1.ServiceSpec{Name: "db", Image: image}
	id := p.create(t, &agboxv1.CreateSpec{
		OptionalServices: []*agboxv1.ServiceSpec{db}, Mounts: []*agboxv1.MountSpec{{Source: p.dir, Target: "/m"}},
		Copies: []*agboxv1.CopySpec{{Source: p.dir + "/file", Target: "/data/file"}}, RestartPolicy: "always",
	})
	pass(time.Minute)
	p.wantState(t, id, ready)
	change := func(old *agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
		next := proto.CloneOf(old)
		next.MemoryLimit = "64MiB"
		return next, []string{"memory_limit"}, true, nil
	}
	if _, _, err := p.store.UpdateSpec(t.Context(), id, 0, change); err != nil {
		t.Fatal(err)
	}
	pass(time.Second)
	p.engine.ExitContainer(p.named(naming.Primary(id)), 1, false)
	pass(time.Minute)
	p.engine.Fail(dockerx.OpStopContainer, 1, errors.New("not now"), false)
	p.must(t, act{"stop", 0})
	pass(time.Minute)
	p.must(t, act{"resume", 0})
	pass(time.Minute)
	p.must(t, act{"engine restart", 0})
	pass(time.Minute)
	p.wantState(t, id, ready)
	if _, err := p.daemon.CreateSnapshot(t.Context(), id, "snap"); err != nil {
		t.Fatal(err)
	}
	if err := p.daemon.RemoveSnapshot(t.Context(), "snap"); err != nil {
		t.Fatal(err)
	}
	p.must(t, act{"delete", 0})
	pass(time.Minute)
	if _, err := p.daemon.ConfirmEngine(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Each action that changes the engine writes one audit line, with a reason from the list.
func TestEachActionOnTheEngineIsOneAuditLine(t *testing.T) {
	var log auditLog
	swapped := 0
	withDaemon(t, func(t *testing.T, p *player) {
		p.auditedLife(t)
		steps, reasons := map[string]int{}, map[string]int{}
		for _, line := range log.lines(t) {
			steps[line.Step]++
			reasons[line.Reason]++
		}
		for step, op := range map[string]string{
			"create-network": dockerx.OpCreateNetwork, "start-container": dockerx.OpStartContainer, "stop-container": dockerx.OpStopContainer,
			"update-limits": dockerx.OpUpdateContainer, "copy-files": dockerx.OpWriteTar, "remove-container": dockerx.OpRemoveContainer,
			"remove-network": dockerx.OpRemoveNetwork, "mark-engine": dockerx.OpCreateVolume, "create-snapshot": dockerx.OpRewriteImage,
		} {
			if n := p.engine.Calls(op); n == 0 || steps[step] != n {
				t.Errorf("%s: %d lines of %d calls", step, steps[step], n)
			}
		}
		if n := p.engine.Calls(dockerx.OpCreateContainer); steps["create-primary"]+steps["create-service"] != n {
			t.Errorf("%d containers were made: %v", n, steps)
		}
		for _, reason := range []plan.Reason{
			plan.BecauseCreate, plan.BecauseMountSwapped, plan.BecauseSpecChanged, plan.BecauseRestartPolicy, plan.BecauseStop,
			plan.BecauseResume, plan.BecauseEngineDeath, plan.BecauseDelete, plan.BecauseEngineMarked, plan.BecauseEngineConfirmed,
			plan.BecauseRequested,
		} {
			if reasons[string(reason)] == 0 {
				t.Errorf("no line for %s: %v", reason, reasons)
			}
		}
	}, func(c *controller.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(&log, nil))
		c.CheckMounted = func(int, hostfiles.Mounted, []hostfiles.Mounted) (bool, error) {
			if swapped++; swapped == 1 {
				return true, errors.New("/m is not what its source names")
			}
			return true, nil
		}
	})
}
