package sandbox

import (
	"strings"
	"testing"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

func TestTheMountOfItsLogsShowsTheOwnerOfAnOldContainer(t *testing.T) {
	mounts := func(source string) []dockerx.Mount {
		return []dockerx.Mount{{Source: "/src", Target: "/src"}, {Source: source, Target: execjournal.ContainerLogs}}
	}
	for _, c := range []struct {
		name     string
		mounts   []dockerx.Mount
		wasReady bool
		want     string // empty: it is ours
	}{
		{"our logs", mounts("/logs/box-1"), true, ""},
		{"our logs, never ready", mounts("/logs/box-1"), false, ""},
		{"logs of another daemon", mounts("/home/bob/logs/box-1"), true, "its logs are in /home/bob/logs/box-1"},
		{"logs of another sandbox", mounts("/logs/box-2"), true, "its logs are in /logs/box-2"},
		{"no logs, once ready: the engine gave us its name", nil, true, ""},
		{"no logs, never ready", nil, false, "it may belong to another daemon"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := foreignTo(dockerx.ContainerDetail{Mounts: c.mounts}, "/logs/box-1", c.wasReady)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestOnlyCertainPartsAreClaimed(t *testing.T) {
	ct := func(id, component, service, name string) dockerx.Container {
		return dockerx.Container{ID: id, Name: name, Labels: map[string]string{naming.Component: component, naming.ServiceName: service}}
	}
	db := func(id, name string) dockerx.Container { return ct(id, naming.ComponentService, "db", name) }
	rec := plan.Record{ID: "box-1", Wanted: plan.Wanted{Services: []plan.Service{{Name: "db"}, {Name: "cache"}}}}
	for _, c := range []struct {
		name       string
		containers []dockerx.Container
		networks   []dockerx.Network
		db, net    string
	}{
		{"one service, under any name", []dockerx.Container{db("1", "renamed")}, []dockerx.Network{{ID: "n", Name: "renamed"}}, "1", "n"},
		{"the one with the name", []dockerx.Container{db("1", "other"), db("2", naming.Service("box-1", "db"))}, []dockerx.Network{
			{ID: "m", Name: "other"}, {ID: "n", Name: naming.Network("box-1")},
		}, "2", "n"},
		{"two, and none has the name", []dockerx.Container{db("1", "a"), db("2", "b")}, nil, "", ""},
		{"a service that the spec does not have", []dockerx.Container{ct("1", naming.ComponentService, "web", "a")}, nil, "", ""},
		{"a primary with a service's name", []dockerx.Container{ct("1", naming.ComponentPrimary, "db", naming.Service("box-1", "db"))}, nil, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := objectsOf(rec, dockerx.Container{ID: "p"}, c.containers, c.networks)
			if o.GetPrimaryId() != "p" || o.GetServiceIds()["db"] != c.db || o.GetServiceIds()["cache"] != "" || o.GetNetworkId() != c.net {
				t.Errorf("%v", o)
			}
		})
	}
}
