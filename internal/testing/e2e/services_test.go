//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/servicelog"
)

func TestServicesComeUpInOrderAndHooksReachThem(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	db, mq, cache := web("db", 2), web("mq", 1), web("cache", 0)
	db.Envs, mq.Envs = map[string]string{"WHO": "for db"}, map[string]string{"ONLY_MQ": "for mq"}
	db.PostStartOnPrimary = []string{fetch("db") + " >/workspace/hooks", "echo $WHO >>/workspace/hooks; id -un >>/workspace/hooks"}
	mq.PostStartOnPrimary = []string{fetch("mq") + " >>/workspace/hooks; echo $WHO, $ONLY_MQ, $MINE >>/workspace/hooks"}
	id := d.create(&agboxv1.CreateSpec{
		Envs:             map[string]string{"WHO": "for all", "MINE": "kept"},
		RequiredServices: []*agboxv1.ServiceSpec{db, mq}, OptionalServices: []*agboxv1.ServiceSpec{cache},
	})
	d.await(id, ready)
	d.awaitEvent(id, 1, serviceReady, "cache")
	d.wantRows(id, "ACCEPTED PREPARING SERVICE_READY(db) SERVICE_READY(mq) READY", "cache")
	if got, want := d.sh(id, "cat /workspace/hooks"), "db\nfor db\nagbox\nmq\nfor all, for mq, kept\n"; got != want {
		t.Errorf("the hooks wrote %q, not %q", got, want)
	}
	if got := d.sh(id, fetch("cache")); got != "cache\n" {
		t.Errorf("the optional one says %q", got)
	}
	d.wantOrder(id)
	if got := fmt.Sprint(d.service(id, "db").GetState(), d.service(id, "cache").GetState()); got != "READYREADY" {
		t.Errorf("the services are %s", got)
	}
	d.remove(id)
}

// wantOrder checks that db was healthy before mq was made, and mq before the primary.
func (d *daemon) wantOrder(id string) {
	d.Helper()
	dbReady := d.event(id, serviceReady, "db").GetOccurredAt().AsTime()
	mq, primary := d.inspect(naming.Service(id, "mq")), d.inspect(naming.Primary(id))
	if mq.Created.Before(dbReady) {
		d.Errorf("mq was made at %s, db was ready at %s", mq.Created, dbReady)
	}
	if mqReady := d.event(id, serviceReady, "mq").GetOccurredAt().AsTime(); primary.Created.Before(mqReady) {
		d.Errorf("the primary was made at %s, mq was ready at %s", primary.Created, mqReady)
	}
}

func TestAHookThatGoesWrongFailsTheCreateAndSaysWhy(t *testing.T) {
	d := newDaemon(t, "", "[runtime]\nhook_timeout = \"2s\"\ncancel_grace = \"1s\"\n")
	withHooks := func(hooks ...string) string {
		db := web("db", 0)
		db.PostStartOnPrimary = hooks
		return d.create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db}})
	}
	fails := withHooks("true", "for i in $(seq 300); do echo line $i; done; exit 7", "touch /workspace/never")
	hangs := withHooks("trap '' TERM; echo still here; while :; do sleep 1; done")
	d.failsWith(fails, "SANDBOX_CREATE_FAILED", "hook 2 of service db", "code 7", "line 299\nline 300")
	d.failsWith(hangs, "SANDBOX_CREATE_FAILED", "hook 1 of service db", "did not end within 2s", "still here")
	took := d.event(hangs, agboxv1.EventType_SANDBOX_FAILED, "").GetOccurredAt().AsTime().Sub(d.event(hangs, serviceReady, "db").GetOccurredAt().AsTime())
	if took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	for id, text := range map[string]string{fails: "line 300\n", hangs: "still here\n"} {
		d.wantRows(id, "ACCEPTED PREPARING SERVICE_READY(db) FAILED")
		d.awaitNothing(id)
		logs := must(filepath.Glob(d.logDir(id) + "/_hook.*.stdout.log"))(t)
		if len(logs) == 0 || !strings.HasSuffix(d.read(logs[len(logs)-1]), text) {
			t.Errorf("the logs of the hooks %v do not end in %q", logs, text)
		}
		d.remove(id)
	}
}

func TestAServiceThatNeverGetsHealthyFailsTheCreateInTime(t *testing.T) {
	d := newDaemon(t, "", "[runtime]\nhealth_timeout = \"4s\"\n")
	with := func(h *agboxv1.HealthcheckConfig) string {
		db := web("db", 0)
		db.Healthcheck = h
		return d.create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{web("first", 0), db, web("last", 0)}})
	}
	starting := probe(1, "echo not yet; false") // the engine gives no verdict for an hour
	starting.StartPeriod = durationpb.New(time.Hour)
	hanging := probe(1, "sleep 1000000")
	hanging.Timeout = durationpb.New(time.Second)
	for id, text := range map[string]string{
		with(probe(2, "echo its own words; false")): "its own words",
		with(hanging):  "db",
		with(starting): "not healthy within 4s",
	} {
		d.failsWith(id, "SANDBOX_CREATE_FAILED", "required service db", text)
		d.wantRows(id, "ACCEPTED PREPARING SERVICE_READY(first) SERVICE_FAILED(db) FAILED")
		took := d.event(id, serviceFailed, "db").GetOccurredAt().AsTime().Sub(d.event(id, serviceReady, "first").GetOccurredAt().AsTime())
		if took > 10*time.Second {
			t.Errorf("%s: it took %s", text, took)
		}
		d.awaitNothing(id)
		d.remove(id)
	}
}

// A service that ends fails the create with its exit code and its last words, although its container is removed.
func TestAServiceThatExitsFailsTheCreateWithItsLastOutput(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	db := &agboxv1.ServiceSpec{
		Name: "db", Image: baseImage, Healthcheck: probe(1, "true"), Envs: map[string]string{"TOKEN": "swordfish"},
		Command: []string{"sh", "-c", "echo reading tables; echo no table for $TOKEN >&2; exit 3"},
	}
	id := d.create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db}})
	d.failsWith(id, "SANDBOX_CREATE_FAILED", "required service db: its container exited with code 3", "no table for [redacted]")
	if f := d.event(id, serviceFailed, "db").GetService(); f.GetErrorCode() != "CONTAINER_DIED" || !strings.Contains(f.GetErrorMessage(), "reading tables") {
		t.Errorf("%v", f)
	}
	d.awaitNothing(id)
	log := must(d.GetServiceLog(d.ctx(), &agboxv1.GetServiceLogRequest{SandboxId: id, ServiceName: "db"}))(t)
	kept := d.read(log.GetLogPath())
	if strings.Count(kept, " stdout F reading tables\n") != 1 || strings.Count(kept, " stderr F no table for swordfish\n") != 1 || log.GetProblem() != "" {
		t.Errorf("%q, %q", kept, log.GetProblem())
	}
	if info, err := os.Stat(log.GetLogPath()); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	d.remove(id)
	if _, err := os.Stat(log.GetLogPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the delete: %v", err)
	}
}

// The output of a service over two runs of the sandbox is there once, also of the stopped sandbox, and whatever root in the sandbox puts in place
// of the file.
func TestTheOutputOfAServiceIsReadableWhileItRunsAndAfterwards(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	db := &agboxv1.ServiceSpec{
		Name: "db", Image: baseImage, Healthcheck: probe(1, "true"), Command: []string{"sh", "-c", "echo run; exec sleep 1000000"},
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := d.create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db}, User: "0:0"})
	d.await(id, ready)
	lines := func() string {
		log := must(d.GetServiceLog(d.ctx(), &agboxv1.GetServiceLogRequest{SandboxId: id, ServiceName: "db"}))(t)
		text := ""
		for _, r := range servicelog.Parse([]byte(d.read(log.GetLogPath()))) {
			text += string(r.Text)
		}
		return text
	}
	want := func(when, text string) {
		t.Helper()
		if got := lines(); got != text {
			t.Errorf("%s: %q", when, got)
		}
	}
	want("while it runs", "run\n")
	want("read again", "run\n")
	for _, trick := range []string{"ln -sf " + secret + " $f", "rm -f $f; mkfifo $f", "rm -f $f; mkdir $f"} {
		d.sh(id, "f=/var/log/agents-sandbox/_service.db.log; "+trick)
		want(trick, "run\n")
	}
	if got := d.read(secret); got != "secret" {
		t.Errorf("the daemon wrote %q through a link", got)
	}
	d.halt(id)
	want("stopped", "run\n")
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
	d.await(id, ready)
	want("resumed", "run\nrun\n")
	_, err := d.GetServiceLog(d.ctx(), &agboxv1.GetServiceLogRequest{SandboxId: id, ServiceName: "mq"})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "its services are db") {
		t.Errorf("of an unknown service: %v", err)
	}
	d.remove(id)
	_, err = d.GetServiceLog(d.ctx(), &agboxv1.GetServiceLogRequest{SandboxId: id, ServiceName: "db"})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("of a deleted sandbox: %v", err)
	}
}

func TestAServiceThatDiesAfterReadyIsReportedOnceAndRestartedByItsPolicy(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1s\"\n")
	db, mq := web("db", 0), web("mq", 0)
	mq.RestartPolicy = "on-failure"
	id := d.create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db, mq}, OptionalServices: []*agboxv1.ServiceSpec{web("opt", 0)}})
	d.await(id, ready)
	d.awaitEvent(id, 1, serviceReady, "opt")
	x := d.exec(id, "sh", "-c", "sleep 4; echo went on")
	d.docker("kill", naming.Service(id, "db"), naming.Service(id, "mq"), naming.Service(id, "opt"))
	d.awaitEvent(id, 1, serviceFailed, "db")
	d.awaitEvent(id, 1, serviceFailed, "mq")
	d.awaitEvent(id, 1, serviceFailed, "opt")
	d.awaitEvent(id, 2, serviceReady, "mq")
	if got := d.sh(id, fetch("mq")); got != "mq\n" {
		t.Errorf("mq says %q", got)
	}
	if st := d.ended(x.GetExecId()); st.GetState() != finished || d.read(x.GetStdoutLogPath()) != "went on\n" {
		t.Errorf("the exec is %s %s", st.GetState(), st.GetError())
	}
	rows := d.rows(id)
	if n := strings.Count(rows, "SERVICE_FAILED"); n != 3 || strings.Contains(rows, "SANDBOX_FAILED") || d.state(id) != ready {
		t.Errorf("%d falls of services: %s", n, rows)
	}
	if f := d.event(id, serviceFailed, "db"); f.GetService().GetErrorCode() != "CONTAINER_DIED" || f.GetSandboxState() != ready {
		t.Errorf("%v", f)
	}
	if s := d.service(id, "db"); s.GetState() != "FAILED" || s.GetErrorCode() != "CONTAINER_DIED" || s.GetRestarts() != 0 {
		t.Errorf("%v", s)
	}
	if s := d.service(id, "mq"); s.GetState() != "READY" || s.GetErrorCode() != "" || s.GetRestarts() != 1 {
		t.Errorf("%v", s)
	}
	d.remove(id)
}

func TestStopAndResumeWithServices(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	db, mq := web("db", 1), web("mq", 0)
	db.PostStartOnPrimary = []string{"echo ran >>/workspace/hooks"}
	id := d.create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db, mq}, OptionalServices: []*agboxv1.ServiceSpec{web("opt", 0)}})
	d.await(id, ready)
	d.awaitEvent(id, 1, serviceReady, "opt")
	d.halt(id)
	if up := d.docker("ps", "-q", "--filter", "label="+naming.SandboxID+"="+id); up != "" {
		t.Errorf("after the stop there runs %s", up)
	}
	d.resume(id)
	d.awaitEvent(id, 2, serviceReady, "opt")
	d.wantRows(id, "ACCEPTED PREPARING SERVICE_READY(db) SERVICE_READY(mq) READY STOP_REQUESTED STOPPED "+
		"ACCEPTED SERVICE_READY(db) SERVICE_READY(mq) READY", "opt")
	if got := d.sh(id, fetch("db")+"; "+fetch("mq")+"; "+fetch("opt")+"; cat /workspace/hooks"); got != "db\nmq\nopt\nran\n" {
		t.Errorf("after the resume: %q", got)
	}
	first, second, primary := d.inspect(naming.Service(id, "db")), d.inspect(naming.Service(id, "mq")), d.inspect(naming.Primary(id))
	if ready := d.event(id, serviceReady, "db").GetOccurredAt().AsTime(); second.State.StartedAt.Before(ready) ||
		ready.Before(first.State.StartedAt) || primary.State.StartedAt.Before(second.State.StartedAt) {
		t.Errorf("db started at %s and was ready at %s, mq started at %s, the primary at %s", first.State.StartedAt, ready,
			second.State.StartedAt, primary.State.StartedAt)
	}
	d.halt(id)
	d.docker("rm", "-f", naming.Service(id, "mq"))
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
	d.failsWith(id, "SANDBOX_RESUME_FAILED", "service mq")
	if _, err := os.Stat(d.logDir(id)); err != nil {
		t.Errorf("the logs: %v", err)
	}
	d.remove(id)
}
