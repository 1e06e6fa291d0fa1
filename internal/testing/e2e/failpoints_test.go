//go:build docker

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/fault"
	"github.com/agbox/agbox/internal/host/naming"
)

// act is a scene with the operations at whose points the daemon dies in it at the latest.
type act struct {
	name string
	ops  []string
	play func(m *mortal, round string)
}

// plays are acts that follow each other, with a daemon of their own. Points of operations that no act names belong to the first.
var plays = [][]act{
	{
		{"life", []string{
			"CreateSandbox", "CreateExec", "EndExec", "Report", "RequestCancel", "UpdateSpec", "SetTimeout", "RequestPause", "RequestResume",
			"RequestStop", "RequestDelete", "NewEpoch", "SetMarkerWritten", "SetEngineIdentity",
			"engine.pull_image", "engine.update_container", "engine.write_tar", "engine.pause_container", "engine.unpause_container",
			"engine.read_logs", "engine.read_tar", "rules.add_sets", "rules.replace", "rules.remove_sets",
		}, (*mortal).wholeLife},
		{"volumes", []string{
			"RequestDeleteWithVolumes", "engine.list_volumes", "engine.list_volume_users", "engine.remove_volume",
		}, (*mortal).keepsVolumes},
		{"recovers", []string{"RequestRecover", "engine.inspect_network", "engine.connect_network"}, (*mortal).recovers},
		{"vanish", []string{"GiveUp", "ForgetGivenUp"}, (*mortal).vanishes},
		{"rebuild", []string{"RecordRebuilt", "RebuildDone", "RememberInstances"}, (*mortal).rebuilds},
	},
	{
		{"agents", []string{
			"CreateAgent", "QueuePrompt", "ClaimPrompt", "TransitionAgent", "Ingest", "RequestInterrupt", "RequestAgentStop", "RequestAgentRun",
			"RequestMove", "MoveAgent", "RequestAgentDelete", "RemoveAgent", "AdoptAgent", "RequestDeleteKeepingAgents", "RequestRedelivery", "WithdrawPrompt",
			"RecordSession", "RecordSessionRestored", "session.save", "session.remove",
		}, (*mortal).agentsLife},
		{"drains", []string{"StartDrain", "SetDrainPhase", "WithdrawDrain", "RequestNudge", "RequestInterruptToSave"}, (*mortal).drains},
	},
	{
		{"snapshots", []string{
			"engine.commit_container", "engine.rewrite_image", "engine.list_images", "engine.remove_image",
		}, (*mortal).keepsFiles},
		{"templates", []string{
			"CreateTemplateBuild", "StartTemplateBuild", "EndTemplateBuild", "RemoveTemplateBuilds", "engine.build_image",
			"builds.receive_archive", "builds.name_archive", "builds.drop_archive", "builds.create_log", "builds.append_log", "builds.remove_file",
			"builds.remove_directory",
		}, (*mortal).builds},
		{"streams", []string{"AttachStdin", "DetachStdin"}, (*mortal).leavesStdin},
		{"gateways", []string{"CreateGatewayKey", "RevokeGatewayKey", "GatewaySecret"}, (*mortal).gateways},
		{"deadlines", []string{"RequestExpire", "RequestIdleStop", "RequestDiskStop", "RequestDeleteMatching", "engine.measure_container"}, (*mortal).deadlines},
		{"collection", []string{"RequestCleanup", "Demote", "RequestPauseCleanup", "PurgeSandbox"}, (*mortal).collections},
	},
}

// TestKilledAtEveryFailpoint kills the daemon right before and right after every store commit and every engine call, each
// once, while everything is done that the daemon can do. The list of points comes from the source: an operation that no scene
// passes fails the test. Its plays are tests and not subtests, which would wait for a turn behind all other tests.
func TestKilledAtEveryFailpoint(t *testing.T) {
	t.Parallel()
	perform(t, 0)
}

func TestKilledAtEveryFailpointOfAgents(t *testing.T) {
	t.Parallel()
	perform(t, 1)
}

func TestKilledAtEveryFailpointOfImagesAndDeadlines(t *testing.T) {
	t.Parallel()
	perform(t, 2)
}

// perform runs the play with the number n.
func perform(t *testing.T, n int) {
	t.Helper()
	all := failpoints(t)
	var unnamed []string
	for _, p := range all {
		unnamed = append(unnamed, strings.TrimPrefix(operation(p), fault.Store+"."))
	}
	named := map[int][]string{}
	for i, play := range plays {
		for _, a := range play {
			named[i] = append(named[i], a.ops...)
		}
		unnamed = slices.DeleteFunc(unnamed, func(op string) bool { return slices.Contains(named[i], op) })
	}
	named[0] = append(named[0], unnamed...)
	m := newMortal(t, "[runtime]\nstop_grace = \"2s\"\ncancel_grace = \"1s\"\nresync_interval = \"2s\"\nclock_grace = \"0\"\n", named[n]...)
	for _, a := range plays[n] {
		m.rehearse(a.name, a.ops, func(round string) { a.play(m, round) })
	}
	if left := m.left(); len(left) > 0 && *scenes == "" {
		t.Errorf("never killed at %v: let a scene pass them, or say in unreached why none can", left)
	}
	listed := append(diskPoints(t), all...)
	for _, p := range m.noted("hit") {
		if !slices.Contains(listed, p) {
			t.Errorf("%s was reached and is not on the list (%s)", p, unreached[operation(p)])
		}
	}
	t.Logf("%d of %d points, %d deaths", len(m.points), len(all), m.deathsYet())
	m.audit() // while it lives: the cleanup ends it first
}

func (m *mortal) wholeLife(round string) {
	src := filepath.Join(m.home, round)
	if err := os.WriteFile(src, []byte("copied"), 0o644); err != nil { //nolint:gosec // the sandbox's user reads it
		m.Fatal(err)
	}
	db := web("db", 0)
	db.PostStartOnPrimary = []string{"echo x >>/workspace/hook"}
	spec := &agboxv1.CreateSpec{
		RequiredServices: []*agboxv1.ServiceSpec{db},
		Copies:           []*agboxv1.CopySpec{{Source: src, Target: "/data/copy"}}, Ports: []*agboxv1.PortSpec{{ContainerPort: 8080}},
	}
	reg := newRegistry(m, 1<<10)
	reg.Release()
	broken := m.box(round+"-broken", &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{
		{Name: "broken", Image: baseImage, Healthcheck: probe(1, "true"), Command: []string{"sh", "-c", "echo last words; exit 3"}},
	}})
	pulled := m.box(round+"-pulled", &agboxv1.CreateSpec{Image: reg.Ref("run")})
	id := m.box(round, spec)
	m.await(id, ready)
	m.await(pulled, ready)
	m.once(id, round+"-hook", "/workspace/hook")

	m.run(id, round+"-x", "sh", "-c", "echo x >>/workspace/mark; for i in 1 2 3; do echo $i; sleep 0.2; done; exit 3")
	if st := m.ended(round + "-x"); st.GetExitCode() != 3 || st.GetErrorCode() != "EXEC_RUN_FAILED" || m.read(st.GetStdoutLogPath()) != "1\n2\n3\n" {
		m.Errorf("%s: %v", round, st)
	}
	m.run(id, round+"-long", "sleep", "1000")
	must(m.CancelExec(m.ctx(), &agboxv1.CancelExecRequest{ExecId: round + "-long"}))(m)
	if st := m.ended(round + "-long"); st.GetState() != ended {
		m.Errorf("%s: a cancelled exec is %v", round, st)
	}
	spec.PidsLimit, spec.Network = 300, &agboxv1.NetworkSpec{Mode: "internet", Deny: []string{"192.0.2.1"}}
	must(m.UpdateSandbox(m.ctx(), &agboxv1.UpdateSandboxRequest{SandboxId: id, CreateSpec: spec}))(m)
	must(m.SetSandboxTimeout(m.ctx(), &agboxv1.SetSandboxTimeoutRequest{
		SandboxId: id, When: &agboxv1.SetSandboxTimeoutRequest_Timeout{Timeout: seconds(3600)},
	}))(m)
	m.freeze(id)
	must(m.ResumeSandbox(m.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(m)
	m.await(id, ready)
	must(m.StopSandbox(m.ctx(), &agboxv1.StopSandboxRequest{SandboxId: id}))(m)
	m.await(id, stopped)
	m.eventually("a file of "+id+" is read through the engine", func() error {
		_, err := agboxv1.NewFileServiceClient(m.conn).Stat(m.ctx(), &agboxv1.StatRequest{SandboxId: id, Path: "/workspace/mark"})
		return err
	})
	must(m.ResumeSandbox(m.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(m)
	m.await(id, ready)
	m.once(id, round+"-again", "/workspace/mark")
	m.gone(id)
	m.gone(pulled)
	m.await(broken, failed)
	m.gone(broken)
}

// keepsVolumes passes a volume from one sandbox to the next of the name, and removes it in both ways.
func (m *mortal) keepsVolumes(round string) {
	var ids []string
	for n := range 3 {
		id := fmt.Sprintf("%s-%d", round, n)
		ids = append(ids, id)
		must(m.CreateSandbox(m.ctx(), &agboxv1.CreateSandboxRequest{SandboxId: id, Name: round, CreateSpec: &agboxv1.CreateSpec{
			Image: baseImage, Volumes: []*agboxv1.VolumeSpec{{Name: "data", Target: "/data"}},
		}}))(m)
		m.await(id, ready)
		m.run(id, id+"-x", "sh", "-c", "echo x >>/data/mark")
		m.ended(id + "-x")
		switch n {
		case 1:
			m.run(id, id+"-look", "sh", "-c", "test $(wc -l </data/mark) = 2")
			if st := m.ended(id + "-look"); st.GetExitCode() != 0 {
				m.Errorf("%s does not have the content of the volume: %v", id, st)
			}
		case 2:
			m.once(id, id+"-once", "/data/mark") // the volume is another one
		}
		must(m.DeleteSandbox(m.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: id, Volumes: n == 1}))(m)
	}
	for _, id := range ids {
		m.await(id, deleted)
		if held := m.held(id); held != "" {
			m.Errorf("%s holds %s", id, held)
		}
	}
	must(m.RemoveVolume(m.ctx(), &agboxv1.RemoveVolumeRequest{SandboxName: round, VolumeName: "data"}))(m)
	if left := must(m.ListVolumes(m.ctx(), &agboxv1.ListVolumesRequest{SandboxName: round}))(m); len(left.GetVolumes()) > 0 {
		m.Errorf("left: %v", left)
	}
}

// keepsFiles makes a sandbox from a snapshot of another one, and removes the snapshot. A death leaves at most a part of it.
func (m *mortal) keepsFiles(round string) {
	id, heir, snap := m.box(round, &agboxv1.CreateSpec{}), round+"-heir", round+"-snap"
	m.await(id, ready)
	m.run(id, round+"-x", "sh", "-c", "echo x >>/workspace/mark")
	m.ended(round + "-x")
	made := must(m.CreateSnapshot(m.ctx(), &agboxv1.CreateSnapshotRequest{SandboxId: id, SnapshotId: snap}))(m).GetSnapshot()
	all := must(m.ListSnapshots(m.ctx(), &agboxv1.ListSnapshotsRequest{}))(m).GetSnapshots()
	if len(all) != 1 || !proto.Equal(all[0], made) {
		m.Errorf("made %v, listed %v", made, all)
	}
	m.once(id, round+"-after", "/workspace/mark") // the container is not left frozen
	m.gone(id)
	m.box(heir, &agboxv1.CreateSpec{Image: made.GetImage()})
	m.await(heir, ready)
	m.once(heir, round+"-again", "/workspace/mark")
	m.gone(heir)
	must(m.RemoveSnapshot(m.ctx(), &agboxv1.RemoveSnapshotRequest{SnapshotId: snap}))(m)
	m.eventually("no image is left", m.noImages)
}

func (m *mortal) deadlines(round string) {
	labels := map[string]string{"round": round}
	expires := m.box(round+"-expires", &agboxv1.CreateSpec{Timeout: seconds(2), Labels: labels})
	idles := m.box(round+"-idles", &agboxv1.CreateSpec{IdleTtl: seconds(1), Labels: labels})
	fills := m.box(round+"-fills", &agboxv1.CreateSpec{DiskLimit: "16MiB", Labels: labels})
	m.await(fills, ready)
	m.run(fills, round+"-x", "sh", "-c", "head -c 33554432 /dev/zero >/tmp/x; sleep 1000")
	m.await(expires, stopped)
	m.await(idles, stopped)
	m.await(fills, stopped)
	must(m.DeleteSandboxes(m.ctx(), &agboxv1.DeleteSandboxesRequest{LabelSelector: labels}))(m)
	for _, id := range []string{expires, idles, fills} {
		m.await(id, deleted)
		if held := m.held(id); held != "" {
			m.Errorf("%s holds %s", id, held)
		}
	}
}

// leavesStdin attaches the writer of an exec's standard input and leaves: the exec ends after its grace, whoever records that.
func (m *mortal) leavesStdin(round string) {
	id := m.box(round, &agboxv1.CreateSpec{})
	m.await(id, ready)
	must(m.CreateExec(m.ctx(), &agboxv1.CreateExecRequest{
		SandboxId: id, ExecId: round + "-x", Command: []string{"cat"}, Stdin: &agboxv1.StdinSpec{WhenGone: "eof", Grace: seconds(1)},
	}))(m)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	r, w := io.Pipe()
	defer w.Close()
	_, _ = m.connect().Attach(ctx, round+"-x", client.AttachOptions{Stdin: r}) // it leaves when its time is over
	if st := m.ended(round + "-x"); st.GetState() != finished {
		m.Errorf("%v", st)
	}
	m.gone(id)
}

// recovers disconnects a sandbox and removes its network by hand, and recovers it.
func (m *mortal) recovers(round string) {
	id := m.box(round, &agboxv1.CreateSpec{})
	m.await(id, ready)
	m.run(id, round+"-x", "sh", "-c", "echo x >>/workspace/mark")
	m.ended(round + "-x")
	m.again(func() { // a daemon would connect it again before the network can be removed
		m.docker("network", "disconnect", "-f", naming.Network(id), naming.Primary(id))
		m.docker("network", "rm", naming.Network(id))
	})
	m.await(id, failed)
	must(m.ResumeSandbox(m.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id, Recover: true}))(m)
	m.await(id, ready)
	m.once(id, round+"-again", "/workspace/mark")
	m.gone(id)
}

// vanishes has two sandboxes vanish while there is no daemon, and an operator confirm it.
func (m *mortal) vanishes(round string) {
	boxes := []string{m.box(round+"-one", &agboxv1.CreateSpec{}), m.box(round+"-two", &agboxv1.CreateSpec{})}
	for _, id := range boxes {
		m.await(id, ready)
	}
	m.again(func() {
		m.docker("rm", "-f", naming.Primary(boxes[0]), naming.Primary(boxes[1]))
		time.Sleep(12 * time.Second) // longer ago than the engine is asked for events: its own word would be proof
	})
	m.eventually("they wait for an operator", func() error {
		for _, id := range boxes {
			if status := m.sandbox(id).GetStatusMessage(); !strings.Contains(status, "vanished") {
				return fmt.Errorf("the status of %s is %q", id, status)
			}
		}
		return nil
	})
	m.eventually("they are judged", func() error { // a daemon that was started again may not hold them yet when the operator confirms
		must(m.admin().ConfirmEngine(m.ctx(), &agboxv1.ConfirmEngineRequest{}))(m)
		for _, id := range boxes {
			if s := m.state(id); s != failed {
				return fmt.Errorf("%s is %s", id, s)
			}
		}
		return nil
	})
	for _, id := range boxes {
		m.gone(id)
	}
}

// gateways makes keys and revokes them all. A create that was cut off may have left a key whose text is lost; it is listed.
func (m *mortal) gateways(round string) {
	c := agboxv1.NewGatewayServiceClient(m.conn)
	secret := must(c.GetGatewaySecret(m.ctx(), &agboxv1.GetGatewaySecretRequest{}))(m).GetSecret()
	made := must(c.CreateGatewayKey(m.ctx(), &agboxv1.CreateGatewayKeyRequest{Owner: round}))(m)
	if found := must(c.GetGatewayKey(m.ctx(), &agboxv1.GetGatewayKeyRequest{Key: made.GetKey()}))(m); found.GetRecord().GetOwner() != round {
		m.Errorf("the key of %s is %v", round, found)
	}
	for _, key := range must(c.ListGatewayKeys(m.ctx(), &agboxv1.ListGatewayKeysRequest{}))(m).GetKeys() {
		_, err := c.RevokeGatewayKey(m.ctx(), &agboxv1.RevokeGatewayKeyRequest{KeyId: key.GetKeyId()})
		if err != nil && !isCode(err, codes.NotFound) { // the answer of the first try was lost
			m.Error(err)
		}
	}
	if left := must(c.ListGatewayKeys(m.ctx(), &agboxv1.ListGatewayKeysRequest{}))(m).GetKeys(); len(left) > 0 {
		m.Errorf("keys are left: %v", left)
	}
	if again := must(c.GetGatewaySecret(m.ctx(), &agboxv1.GetGatewaySecretRequest{}))(m).GetSecret(); len(secret) != 32 || !bytes.Equal(again, secret) {
		m.Error("the secret has changed")
	}
}

// builds builds a template until a build is not interrupted, and deletes it.
func (m *mortal) builds(round string) {
	c := agboxv1.NewTemplateServiceClient(m.conn)
	tries, state := 0, agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_UNSPECIFIED
	for state != agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_READY && tries <= len(m.points) { // each death interrupts one
		tries++
		state = m.buildOnce(c, round)
	}
	for _, t := range must(c.ListTemplates(m.ctx(), &agboxv1.ListTemplatesRequest{GatewayOwner: "me"}))(m).GetTemplates() {
		if t.GetImage() == "" {
			m.Errorf("%s: no image after %d builds: %v", round, tries, t)
		}
		_, err := c.RemoveTemplate(m.ctx(), &agboxv1.RemoveTemplateRequest{GatewayOwner: "me", TemplateId: t.GetTemplateId()})
		if err != nil && !isCode(err, codes.NotFound) { // the answer of the first try was lost
			m.Error(err)
		}
	}
	if left := must(c.ListTemplates(m.ctx(), &agboxv1.ListTemplatesRequest{}))(m).GetTemplates(); len(left) > 0 {
		m.Errorf("templates are left: %v", left)
	}
}

// buildOnce returns the end of one build.
func (m *mortal) buildOnce(c agboxv1.TemplateServiceClient, round string) (state agboxv1.TemplateBuildState) {
	m.Helper()
	b := must(c.CreateTemplateBuild(m.ctx(), &agboxv1.CreateTemplateBuildRequest{GatewayOwner: "me", Name: strings.ToLower(round)}))(m).GetBuild()
	m.uploads(b.GetTemplateId(), errors.New("it breaks off"))
	m.uploads(b.GetTemplateId(), nil)
	_, err := c.StartTemplateBuild(m.ctx(), &agboxv1.StartTemplateBuildRequest{
		GatewayOwner: "me", BuildId: b.GetBuildId(), FromImage: baseImage, Steps: []*agboxv1.TemplateStep{
			{Type: "COPY", Args: []string{"a", "/a"}, FilesHash: filesHash}, {Type: "RUN", Args: []string{"test $(cat /a) = content; echo " + round}},
		},
	})
	if err != nil && !isCode(err, codes.FailedPrecondition) { // the answer of the first try was lost
		m.Fatal(err)
	}
	m.eventually("the build has ended", func() error {
		now := must(c.GetTemplateBuild(m.ctx(), &agboxv1.GetTemplateBuildRequest{GatewayOwner: "me", BuildId: b.GetBuildId()}))(m).GetBuild()
		if state = now.GetState(); state == agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_BUILDING {
			return fmt.Errorf("it is %v", now)
		}
		return nil
	})
	return state
}

var filesHash = strings.Repeat("ab", 32)

// uploads stores the files of a build until that succeeds. With an error, the content breaks off with it.
func (m *mortal) uploads(template string, broken error) {
	m.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := w.WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644, Size: 7})
	if err == nil {
		_, err = w.Write([]byte("content"))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		m.Fatal(err)
	}
	m.eventually("files are stored", func() error {
		content := io.Reader(bytes.NewReader(archive.Bytes()))
		if broken != nil {
			content = io.MultiReader(content, breaksOff{broken})
		}
		err := m.connect().UploadTemplateFiles(m.ctx(), "me", template, filesHash, content)
		if broken != nil && !isCode(err, codes.Unavailable) {
			return nil // the daemon was there to see it
		}
		return err
	})
}

// breaksOff is a reader that fails once the daemon has the beginning.
type breaksOff struct{ err error }

func (b breaksOff) Read([]byte) (int, error) {
	time.Sleep(200 * time.Millisecond)
	return 0, b.err
}

// crewOf is a sandbox for agents.
func (m *mortal) crewOf(id string) *crew {
	m.Helper()
	m.box(id, &agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: filepath.Join(binaries, "testagent"), Target: "/bin/testagent"}}})
	m.await(id, ready)
	return &crew{daemon: m.daemon, box: id}
}

func (m *mortal) agentsLife(round string) {
	c, other := m.crewOf(round), m.crewOf(round+"-other")
	id := c.hire(round, "native", "native")
	c.awaitAgent(id, agentIdle)
	c.tell(id, round+"-told", "remember a plum")
	if r := c.result(id, round+"-told"); r.GetOutcome() != "end_turn" {
		m.Errorf("%s: %v", id, r)
	}
	c.tell(id, round+"-cut", "sleep 1000")
	c.awaitAgent(id, agentBusy)
	must(c.agents().InterruptAgent(c.ctx(), &agboxv1.InterruptAgentRequest{AgentId: id}))(m)
	if r := c.result(id, round+"-cut"); r.GetOutcome() != "interrupted" {
		m.Errorf("%s: %v", id, r)
	}
	must(c.agents().StopAgent(c.ctx(), &agboxv1.StopAgentRequest{AgentId: id}))(m)
	c.awaitAgent(id, agentStopped)
	must(c.agents().StartAgent(c.ctx(), &agboxv1.StartAgentRequest{AgentId: id}))(m)
	c.awaitAgent(id, agentIdle)
	m.restartNow() // the new daemon adopts what runs
	c.awaitAgent(id, agentIdle)
	c.send(id, other.box)
	c.arrives(id, other.box)
	c.send(id, c.box)
	c.arrives(id, c.box)
	c.deleteKeeping(other.box)
	m.await(other.box, deleted)
	c.tell(id, round+"-asked", "what did I say?")
	if r := c.result(id, round+"-asked"); r.GetOutcome() != "end_turn" {
		m.Errorf("%s: %v", id, r)
	}
	for _, turn := range c.turns(id) {
		if turn.GetRole() == "assistant" && strings.HasPrefix(turn.GetContent(), "you said") && turn.GetContent() != "you said: a plum" {
			m.Errorf("%s says %q", id, turn.GetContent())
		}
	}
	c.holds(round)
	m.keepsSession(c, round)
	must(c.agents().DeleteAgent(c.ctx(), &agboxv1.DeleteAgentRequest{AgentId: id}))(m)
	m.eventually(id+" is gone", func() error {
		resp, err := c.agents().ListAgents(c.ctx(), &agboxv1.ListAgentsRequest{})
		if err == nil && slices.ContainsFunc(resp.GetAgents(), func(a *agboxv1.AgentHandle) bool { return a.GetAgentId() == id }) {
			err = fmt.Errorf("it is there")
		}
		return err
	})
	m.gone(c.box)
}

// keepsSession has the session of a program saved, put into another sandbox, and removed with its agent.
func (m *mortal) keepsSession(c *crew, round string) {
	m.Helper()
	lab := m.crewOf(round + "-lab")
	id := c.hire(round+"-resumes", "claude-stream-json", "claude", withSessions)
	c.awaitAgent(id, agentIdle)
	c.tell(id, round+"-session", "remember a plum")
	c.result(id, round+"-session")
	c.agentIs(id, "saved", func(a *agboxv1.AgentHandle) bool { return a.GetSession().GetSavedAt() != nil })
	c.send(id, lab.box)
	c.arrives(id, lab.box)
	c.agentIs(id, "resumed", func(a *agboxv1.AgentHandle) bool {
		return a.GetRung() == agboxv1.AgentRung_AGENT_RUNG_NATIVE || a.GetRung() == agboxv1.AgentRung_AGENT_RUNG_ADOPTED
	})
	must(c.agents().DeleteAgent(c.ctx(), &agboxv1.DeleteAgentRequest{AgentId: id}))(c)
	c.eventually(id+" leaves no copy", func() error {
		if _, err := os.Lstat(c.data("sessions/" + id)); !os.IsNotExist(err) {
			return fmt.Errorf("its copy: %w", err)
		}
		return nil
	})
	m.gone(lab.box)
}

// holds has a prompt held, given back to the queue, and withdrawn.
func (c *crew) holds(round string) {
	c.Helper()
	id, prompt := c.hire(round+"-holds", "native", "native", func(s *agboxv1.AgentSpec) { s.OnInterrupted = "hold" }), round+"-held"
	c.awaitAgent(id, agentIdle)
	c.tell(id, prompt, "sleep 1000")
	c.awaitAgent(id, agentBusy)
	must(c.agents().StopAgent(c.ctx(), &agboxv1.StopAgentRequest{AgentId: id}))(c)
	c.agentIs(id, "stopped with a held prompt", func(a *agboxv1.AgentHandle) bool {
		return a.GetState() == agentStopped && a.GetHeldPrompts() == 1 && a.GetHeldReason() != ""
	})
	must(c.agents().RedeliverPrompt(c.ctx(), &agboxv1.RedeliverPromptRequest{AgentId: id, PromptId: prompt}))(c)
	if a := c.agent(id); a.GetHeldPrompts() != 0 || a.GetQueuedPrompts() != 1 {
		c.Errorf("%d prompts are held, %d wait", a.GetHeldPrompts(), a.GetQueuedPrompts())
	}
	must(c.agents().WithdrawPrompt(c.ctx(), &agboxv1.WithdrawPromptRequest{AgentId: id, PromptId: prompt}))(c)
	if a := c.agent(id); a.GetHeldPrompts() != 0 || a.GetQueuedPrompts() != 0 {
		c.Errorf("%d prompts are held, %d wait", a.GetHeldPrompts(), a.GetQueuedPrompts())
	}
	must(c.agents().DeleteAgent(c.ctx(), &agboxv1.DeleteAgentRequest{AgentId: id}))(c)
}

// restartNow kills the daemon between two points.
func (m *mortal) restartNow() { m.again(func() {}) }

// drains: a drain is of one start of the daemon, so a death ends it and the scene requests it again.
func (m *mortal) drains(round string) {
	c := m.crewOf(round)
	nudged := c.hire(round+"-nudged", "native", "native", func(s *agboxv1.AgentSpec) { s.Nudge = "echo finished" })
	deaf := c.hire(round+"-deaf", "native", "native", func(s *agboxv1.AgentSpec) { s.Nudge = "echo never" })
	c.awaitAgent(nudged, agentIdle)
	c.awaitAgent(deaf, agentIdle)
	c.tell(nudged, round+"-1", "sleep 1000")
	c.tell(deaf, round+"-2", "ignore\nsleep 1000")
	c.awaitAgent(nudged, agentBusy)
	c.awaitAgent(deaf, agentBusy)
	m.eventually("a drain is done", func() error {
		if _, err := c.admin().Drain(c.ctx(), &agboxv1.DrainRequest{Wait: seconds(1), SaveEach: seconds(2)}); err != nil && !isCode(err, codes.FailedPrecondition) {
			return err // else it drains already
		}
		resp, err := c.admin().GetDrainStatus(c.ctx(), &agboxv1.GetDrainStatusRequest{})
		if err == nil && resp.GetStatus().GetPhase() != agboxv1.DrainPhase_DRAIN_PHASE_DONE {
			err = fmt.Errorf("%v", resp.GetStatus())
		}
		return err
	})
	must(c.admin().Undrain(c.ctx(), &agboxv1.UndrainRequest{}))(m)
	m.gone(c.box)
}

// rebuilds loses the database, and in every other round the instance's name too.
func (m *mortal) rebuilds(round string) {
	c := m.crewOf(round)
	id := c.hire(round, "native", "native")
	gone := c.hire(round+"-gone", "native", "native")
	c.awaitAgent(id, agentIdle)
	c.tell(id, round+"-told", "remember a plum")
	c.result(id, round+"-told")
	must(c.agents().DeleteAgent(c.ctx(), &agboxv1.DeleteAgentRequest{AgentId: gone}))(m)
	m.run(c.box, round+"-x", "sh", "-c", "echo x >>/workspace/mark; sleep 3; exit 5")
	m.run(c.box, round+"-wait", "sh", "-c", "until test -s /workspace/mark; do sleep 0.1; done")
	m.ended(round + "-wait")
	m.once(c.box, round+"-before", "/workspace/mark")
	m.again(func() { m.lose(theDatabase, theUUID); m.cutMark() })
	m.await(c.box, ready)
	if st := m.ended(round + "-x"); st.GetExitCode() != 5 {
		m.Errorf("%s: %v", round, st)
	}
	m.once(c.box, round+"-after", "/workspace/mark")
	c.awaitAgent(id, agentIdle)
	c.tell(id, round+"-asked", "what did I say?")
	if r := c.result(id, round+"-asked"); r.GetOutcome() != "end_turn" {
		m.Errorf("%s: %v", id, r)
	}
	m.again(func() { m.lose(theDatabase, theUUID, theLog) }) // so that the labels name a former instance
	m.await(c.box, ready)
	m.once(c.box, round+"-last", "/workspace/mark")
	m.gone(c.box)
}

// collections have the daemon collect what rests for a second. Only they may have these settings.
func (m *mortal) collections(round string) {
	if !strings.Contains(m.conf, "cleanup_ttl") {
		m.again(func() {
			m.conf += "cleanup_ttl = \"1s\"\nevent_retention_ttl = \"1s\"\n[pause]\nfreeze_duration = \"1s\"\nstopped_gc_after = \"1s\"\n"
		})
	}
	rests, sleeps := m.box(round+"-rests", &agboxv1.CreateSpec{}), m.box(round+"-sleeps", &agboxv1.CreateSpec{})
	m.await(rests, ready)
	m.await(sleeps, ready)
	must(m.StopSandbox(m.ctx(), &agboxv1.StopSandboxRequest{SandboxId: rests}))(m)
	must(m.PauseSandbox(m.ctx(), &agboxv1.PauseSandboxRequest{SandboxId: sleeps}))(m)
	for _, id := range []string{rests, sleeps} {
		m.eventually(id+" is collected", func() error {
			sb, err := m.GetSandbox(m.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id})
			if isCode(err, codes.NotFound) {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("it is %s", sb.GetSandbox().GetState())
			}
			return err
		})
		if held := m.held(id); held != "" {
			m.Errorf("%s holds %s", id, held)
		}
	}
}

// TestUnreachedFailpointsExist: a reason for an operation that is no more would hide the next one of that name.
func TestUnreachedFailpointsExist(t *testing.T) {
	all := allPoints(t)
	for op := range unreached {
		if !slices.Contains(all, op+"."+fault.Before) {
			t.Errorf("there is no %s", op)
		}
	}
}
