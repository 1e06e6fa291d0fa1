package conformance

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func labelled(key, value string) func(*spec) {
	return func(s *spec) {
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels[key] = value
	}
}

func reads(t *testing.T, c *client) {
	c.sub(t, "ping says who answers", func(c *client) {
		resp, err := c.Ping(c.ctx(), &agboxv1.PingRequest{})
		c.must(err)
		if resp.GetDaemon() != "agboxd" || resp.GetVersion() == "" {
			c.Errorf("%v", resp)
		}
	})
	c.sub(t, "an attack needs a sandbox", func(c *client) {
		_, err := agboxv1.NewAdminServiceClient(c.conn).ListAttackTargets(c.ctx(), &agboxv1.ListAttackTargetsRequest{})
		c.refused(err, refusal{codes.InvalidArgument, "INVALID_SPEC", "sandbox_id is required", map[string]string{"field": "sandbox_id"}})
	})
	c.sub(t, "the doctor gives each check a name, a status and, unless it is ok, a text", func(c *client) {
		resp, err := agboxv1.NewAdminServiceClient(c.conn).Doctor(c.ctx(), &agboxv1.DoctorRequest{})
		c.must(err)
		seen := map[string]bool{}
		for _, check := range resp.GetChecks() {
			known := slices.Contains([]string{"ok", "warning", "problem"}, check.GetStatus())
			if !known || check.GetName() == "" || seen[check.GetName()] || check.GetStatus() != "ok" && check.GetText() == "" {
				c.Errorf("%v", check)
			}
			seen[check.GetName()] = true
		}
		if !seen["disk_limit"] || !seen["security.profile"] {
			c.Errorf("%v", resp)
		}
	})
	c.sub(t, "a handle has the spec and the status", aHandle)
	c.sub(t, "lists are newest first, and by labels", lists)
	c.sub(t, "a create from YAML, with create_spec over it", fromYAML)
}

func aHandle(c *client) {
	before := time.Now().Add(-time.Second)
	id := c.create(labelled("team", "a"), func(s *spec) {
		s.Envs = map[string]string{"A": "b"}
		s.IdleTtl = durationpb.New(time.Hour)
	})
	first := c.get(id)
	h := c.await(id, ready)
	if h.GetSandboxId() != id || h.GetImage() != c.target.Image || h.GetLabels()["team"] != "a" || len(h.GetLabels()) != 1 {
		c.Errorf("%v", h)
	}
	if !proto.Equal(h.GetCreatedAt(), first.GetCreatedAt()) || h.GetCreatedAt().AsTime().Before(before) ||
		h.GetStateChangedAt().AsTime().Before(h.GetCreatedAt().AsTime()) {
		c.Errorf("created %v, changed %v", h.GetCreatedAt().AsTime(), h.GetStateChangedAt().AsTime())
	}
	if h.GetErrorCode() != "" || h.GetErrorMessage() != "" || h.GetLastEventSequence() < 3 {
		c.Errorf("%v", h)
	}
	if h.GetSpec().GetEnvs()["A"] != "b" || h.GetSpec().GetIdleTtl().AsDuration() != time.Hour {
		c.Errorf("spec %v", h.GetSpec())
	}
	c.must(c.tryDelete(id))
	if h := c.await(id, deleted); h.GetImage() != c.target.Image || h.GetLabels()["team"] != "a" {
		c.Errorf("after the delete: %v", h)
	}
}

func lists(c *client) {
	group := newID()
	var made []string
	for _, n := range []string{"1", "2", "3"} {
		made = append(made, c.create(labelled("group", group), labelled("n", n)))
	}
	newestFirst := []string{made[2], made[1], made[0]}
	c.listed(newestFirst, false, map[string]string{"group": group})
	c.listed(made[1:2], false, map[string]string{"group": group, "n": "2"})
	c.listed(nil, false, map[string]string{"group": group, "n": ""})
	c.listed(nil, false, map[string]string{"group": group, "other": "2"})
	c.deletes(made[1])
	c.listed([]string{made[2], made[0]}, false, map[string]string{"group": group})
	c.listed(newestFirst, true, map[string]string{"group": group})
}

// listed compares a list with the IDs that it should have, in their order.
func (c *client) listed(want []string, includeDeleted bool, selector map[string]string) {
	c.Helper()
	resp, err := c.ListSandboxes(c.ctx(), &agboxv1.ListSandboxesRequest{IncludeDeleted: includeDeleted, LabelSelector: selector})
	c.must(err)
	var got []string
	for _, h := range resp.GetSandboxes() {
		got = append(got, h.GetSandboxId())
	}
	if !slices.Equal(got, want) {
		c.Errorf("list %v (deleted: %t) is %q, want %q", selector, includeDeleted, got, want)
	}
}

func fromYAML(c *client) {
	id := newID()
	_, err := c.tryCreate(&agboxv1.CreateSandboxRequest{
		SandboxId:  id,
		ConfigYaml: []byte("image: of-the-yaml:1\nlabels: {a: yaml, b: yaml}\nidle_ttl: 2h\n"),
		CreateSpec: &spec{Image: c.target.Image, Labels: map[string]string{"b": "spec", "c": "spec"}},
	})
	c.must(err)
	h := c.await(id, ready)
	labels := h.GetLabels()
	if h.GetImage() != c.target.Image || len(labels) != 3 || labels["a"] != "yaml" || labels["b"] != "spec" || labels["c"] != "spec" {
		c.Errorf("%v", h)
	}
	if h.GetSpec().GetIdleTtl().AsDuration() != 2*time.Hour {
		c.Errorf("idle_ttl is %v", h.GetSpec().GetIdleTtl().AsDuration())
	}
}
