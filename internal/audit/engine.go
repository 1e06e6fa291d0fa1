package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Labels of the daemon's objects; fixed by the wire contract.
const (
	labelPrefix    = "io.github.1996fanrui.agents-sandbox"
	labelSandbox   = labelPrefix + ".sandbox-id"
	labelComponent = labelPrefix + ".component"
	labelService   = labelPrefix + ".service-name"
	labelInstance  = labelPrefix + ".instance"

	labelSandboxName = labelPrefix + ".sandbox-name" // of volumes
	labelVolume      = labelPrefix + ".volume"
)

// world has the engine's objects of one store.
type world struct {
	containers []container
	networks   []network
	volumes    []volume // named ones
	roots      []volume // parts of read-only roots
}

type container struct {
	ID       string            `json:"Id"`
	Names    []string          `json:"Names"`
	Mounts   []mount           `json:"Mounts"`
	Labels   map[string]string `json:"Labels"`
	State    string            `json:"State"` // created, running, paused, restarting, exited, dead, removing
	Settings struct {
		Networks map[string]struct {
			NetworkID string `json:"NetworkID"`
		} `json:"Networks"`
	} `json:"NetworkSettings"`
}

// mount is a mount of a container.
type mount struct {
	Type string `json:"Type"` // bind, volume
	Name string `json:"Name"` // of the volume
}

func (c container) mounts(volume string) bool {
	return slices.Contains(c.Mounts, mount{"volume", volume})
}

func (c container) name() string {
	if len(c.Names) > 0 {
		return strings.TrimPrefix(c.Names[0], "/")
	}
	return c.ID[:min(12, len(c.ID))]
}

func (c container) sandbox() string { return c.Labels[labelSandbox] }
func (c container) primary() bool   { return c.Labels[labelComponent] == "primary" }
func (c container) frozen() bool    { return c.State == "paused" }

// alive reports whether it has processes, frozen ones included.
func (c container) alive() bool {
	return c.State == "running" || c.State == "paused" || c.State == "restarting"
}

func (c container) attachedTo(networkID string) bool {
	for _, n := range c.Settings.Networks {
		if n.NetworkID == networkID {
			return true
		}
	}
	return false
}

type network struct {
	ID     string            `json:"Id"`
	Name   string            `json:"Name"`
	Labels map[string]string `json:"Labels"`
}

type volume struct {
	Name   string            `json:"Name"`
	Labels map[string]string `json:"Labels"`
}

// named reports whether it is a named volume of a sandbox's name, and not the marker.
func (v volume) named() bool { return v.Labels[labelComponent] == "volume" }

// ofRoot reports whether it is a writable part of a sandbox's read-only root.
func (v volume) ofRoot() bool { return v.Labels[labelComponent] == "root" }

func (v volume) title() string {
	return "volume " + v.Labels[labelSandboxName] + "/" + v.Labels[labelVolume]
}

const (
	engineTimeout  = 30 * time.Second
	maxEngineBytes = 256 << 20
	defaultEngine  = "unix:///var/run/docker.sock"
)

// listWorld lists all objects with the label of one of the instances. It uses plain HTTP, so that it
// shares no client with the controller.
func listWorld(ctx context.Context, host string, instances []string) (world, error) {
	var w world
	engine, err := newEngine(host)
	if err != nil {
		return w, err
	}
	defer engine.http.CloseIdleConnections()
	for _, id := range instances {
		filter, err := json.Marshal(map[string][]string{"label": {labelInstance + "=" + id}})
		if err != nil {
			return w, err
		}
		var cs []container
		if err := engine.get(ctx, "/containers/json", url.Values{"all": {"1"}, "filters": {string(filter)}}, &cs); err != nil {
			return w, err
		}
		var ns []network
		if err := engine.get(ctx, "/networks", url.Values{"filters": {string(filter)}}, &ns); err != nil {
			return w, err
		}
		var vs struct {
			Volumes []volume `json:"Volumes"`
		}
		if err := engine.get(ctx, "/volumes", url.Values{"filters": {string(filter)}}, &vs); err != nil {
			return w, err
		}
		w.containers, w.networks = append(w.containers, cs...), append(w.networks, ns...)
		for _, v := range vs.Volumes {
			switch {
			case v.named():
				w.volumes = append(w.volumes, v)
			case v.ofRoot():
				w.roots = append(w.roots, v)
			}
		}
	}
	return w, nil
}

// engine is a client whose requests all go to one host.
type engine struct {
	base string // of URLs; a TCP address may have a path
	http *http.Client
}

func newEngine(host string) (*engine, error) {
	kind, addr, ok := strings.Cut(cmp.Or(host, defaultEngine), "://")
	if !ok || kind != "unix" && kind != "tcp" {
		return nil, fmt.Errorf("engine address %q: want unix:///path or tcp://host:port", host)
	}
	base, transport := "http://"+addr, &http.Transport{}
	if kind == "unix" {
		base = "http://engine"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, kind, addr)
		}
	}
	return &engine{base, &http.Client{Timeout: engineTimeout, Transport: transport}}, nil
}

func (e *engine) get(ctx context.Context, path string, query url.Values, to any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxEngineBytes))
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %.200s", path, resp.Status, body)
	}
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}
