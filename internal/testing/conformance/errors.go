package conformance

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// refusals has the rows of the table of errors that no other group has.
func refusals(t *testing.T, c *client) {
	c.sub(t, "specs that are refused", badSpecs)
	c.sub(t, "a sandbox that never was", unknownSandbox)
	c.sub(t, "an exec that never was", func(c *client) {
		id := newID()
		unknown := aboutExec(codes.NotFound, "EXEC_NOT_FOUND", id, "exec %s was not found")
		c.refused(errOf(c.GetExec(c.ctx(), &agboxv1.GetExecRequest{ExecId: id})), unknown)
		c.refused(c.tryCancel(id), unknown)
	})
	c.sub(t, "a READY sandbox", func(c *client) {
		id := c.ready()
		c.refused(c.tryResume(id), notStopped(id))
		_, err := c.CreateExec(c.ctx(), &agboxv1.CreateExecRequest{SandboxId: id})
		c.refused(err, invalid("command", "command must not be empty"))
		c.expired(id, c.get(id).GetLastEventSequence()+1)
	})
	c.sub(t, "a STOPPED sandbox", func(c *client) {
		id := c.ready()
		c.stops(id)
		c.refusesWork(id)
	})
	c.sub(t, "a FAILED sandbox", func(c *client) {
		id := c.ready()
		c.daemon.Break(c, id, RemovePrimary)
		c.subscribe(id, 0, false).until(agboxv1.EventType_SANDBOX_FAILED)
		c.refusesWork(id)
		c.refused(c.tryResume(id), notStopped(id))
		c.must(c.tryDelete(id))
		c.subscribe(id, 0, false).until(agboxv1.EventType_SANDBOX_DELETED)
	})
	c.sub(t, "a DELETED sandbox", func(c *client) {
		id := c.ready()
		c.must(c.tryDelete(id))
		c.must(c.tryDelete(id)) // is DELETING, or DELETED already
		c.refusesWork(id)
		c.await(id, deleted)
		c.must(c.tryDelete(id))
		c.refusesWork(id)
		c.refused(c.tryResume(id), notStopped(id))
	})
	c.sub(t, "a name is unique among live sandboxes", names)
}

// refusesWork makes the calls that need a running sandbox.
func (c *client) refusesWork(id string) {
	c.Helper()
	c.refused(c.tryExec(id), sandboxNotReady(id))
	c.refused(c.tryStop(id), notReady(id))
	c.refused(c.tryPause(id), notReady(id))
	c.refused(errOf(c.trySet(id, after(time.Hour))), notRunning(id))
}

func (c *client) tryExec(id string) error { return c.tryExecID(id, "", "true") }

func badSpecs(c *client) {
	image := c.target.Image
	for name, row := range map[string]struct {
		req  *agboxv1.CreateSandboxRequest
		want refusal
	}{
		"neither spec nor YAML":    {&agboxv1.CreateSandboxRequest{}, invalid("create_spec", "create_spec is required")},
		"no image":                 {&agboxv1.CreateSandboxRequest{CreateSpec: &spec{}}, invalid("image", "create_spec.image is required")},
		"no image after the merge": {&agboxv1.CreateSandboxRequest{ConfigYaml: []byte("labels: {a: b}")}, invalid("image", "create_spec.image is required")},
		"YAML that is none":        {yaml("image: [x"), invalid("config_yaml", "invalid config_yaml: ...")},
		"YAML with an unknown key": {yaml("image: x\nimagge: y"), invalid("config_yaml", "invalid config_yaml: ...")},
		"YAML with a key twice":    {yaml("image: x\nimage: y"), invalid("config_yaml", "invalid config_yaml: ...")},
		"YAML with nothing in it":  {yaml("# nothing\n"), invalid("config_yaml", "invalid config_yaml: ...")},
		"a rule names its field": {
			&agboxv1.CreateSandboxRequest{CreateSpec: &spec{Image: image, Mounts: []*agboxv1.MountSpec{
				{Source: "/etc", Target: "/mnt"}, {Source: "/etc", Target: "relative"},
			}}},
			invalid("mounts[1].target", "mounts[1].target ..."),
		},
		"a required service without a healthcheck": {
			&agboxv1.CreateSandboxRequest{CreateSpec: &spec{Image: image, RequiredServices: []*agboxv1.ServiceSpec{{Name: "db", Image: image}}}},
			invalid("required_services[db].healthcheck", "required_services[db].healthcheck ..."),
		},
		"an optional service with hooks": {
			&agboxv1.CreateSandboxRequest{CreateSpec: &spec{Image: image, OptionalServices: []*agboxv1.ServiceSpec{
				{Name: "db", Image: image, PostStartOnPrimary: []string{"true"}},
			}}},
			invalid("optional_services[db].post_start_on_primary", "optional_services[db].post_start_on_primary ..."),
		},
	} {
		_, err := c.CreateSandbox(c.ctx(), row.req)
		c.Log(name)
		c.refused(err, row.want)
	}
}

// limits checks the refusal where memory can't be limited, and ends the test there.
func (c *client) limits() {
	c.Helper()
	if !c.target.NoCgroups {
		return
	}
	_, err := c.CreateSandbox(c.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: &spec{Image: c.target.Image, MemoryLimit: "64MiB"}})
	c.refused(err, invalid("memory_limit", "memory_limit cannot be honoured: ..."))
	c.Skip("the engine can't limit memory")
}

func yaml(text string) *agboxv1.CreateSandboxRequest {
	return &agboxv1.CreateSandboxRequest{ConfigYaml: []byte(text)}
}

func unknownSandbox(c *client) {
	id := newID()
	c.refused(errOf(c.GetSandbox(c.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id})), sandboxNotFound(id))
	c.refused(errOf(c.GetServiceLog(c.ctx(), &agboxv1.GetServiceLogRequest{SandboxId: id, ServiceName: "db"})), sandboxNotFound(id))
	c.refused(errOf(c.GetStats(c.ctx(), &agboxv1.GetStatsRequest{SandboxIds: []string{id}})), sandboxNotFound(id))
	c.refused(errOf(c.GetNetworkActivity(c.ctx(), &agboxv1.GetNetworkActivityRequest{SandboxId: id})), sandboxNotFound(id))
	c.refused(c.tryStop(id), sandboxNotFound(id))
	c.refused(c.tryResume(id), sandboxNotFound(id))
	c.refused(c.tryExec(id), sandboxNotFound(id))
	c.refused(c.tryDelete(id), sandboxNotFound(id))
	c.refused(c.tryPause(id), sandboxNotFound(id))
	c.refused(errOf(c.trySet(id, after(time.Hour))), sandboxNotFound(id))
	next := &agboxv1.UpdateSandboxRequest{SandboxId: id, CreateSpec: &spec{Image: c.target.Image}}
	c.refused(errOf(c.UpdateSandbox(c.ctx(), next)), sandboxNotFound(id))
	c.refused(c.subscribe(id, 0, true).ends(), sandboxNotFound(id))
	resp, err := c.ListActiveExecs(c.ctx(), &agboxv1.ListActiveExecsRequest{SandboxId: &id})
	if err != nil || len(resp.GetExecs()) != 0 {
		c.Errorf("active execs: %v, %v", resp, err)
	}
}

func names(c *client) {
	name, id := newID(), newID()
	c.must(c.tryPlain(id, name))
	err := c.tryPlain(newID(), name)
	if got := infoOfError(err).GetMetadata()["sandbox_id"]; got == "" {
		c.Errorf("no sandbox_id in %v", err)
	} else {
		c.refused(err, refusal{codes.AlreadyExists, "SANDBOX_NAME_ALREADY_EXISTS", "sandbox name " + name + " already exists", map[string]string{"sandbox_id": got}})
	}
	c.deletes(id)
	again := newID()
	c.must(c.tryPlain(again, name)) // free again
	c.await(again, ready)
	c.deletes(again)
}
