package dockerx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"
	"github.com/docker/go-connections/nat"
	"golang.org/x/sys/unix"
)

// publishIP is the one address of the host that ports are published on.
const publishIP = "127.0.0.1"

// Port is one published port. HostPort 0: the engine chooses a port at each start.
type Port struct {
	ContainerPort, HostPort uint16
	Protocol                string // "tcp" or "udp"
}

// Compare orders by container port, protocol and host port.
func (p Port) Compare(q Port) int {
	return cmp.Or(
		cmp.Compare(p.ContainerPort, q.ContainerPort), cmp.Compare(p.Protocol, q.Protocol), cmp.Compare(p.HostPort, q.HostPort))
}

func (s *ContainerSpec) checkPorts() error {
	if len(s.Ports) > 0 && s.NetworkID == "" {
		return fmt.Errorf("published ports need a network: %w", errdefs.ErrInvalidArgument)
	}
	for _, p := range s.Ports {
		if p.ContainerPort == 0 || p.Protocol != "tcp" && p.Protocol != "udp" {
			return fmt.Errorf("port %d/%s: want 1-65535 and tcp or udp: %w", p.ContainerPort, p.Protocol, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

func (p Port) key() nat.Port {
	return nat.Port(strconv.Itoa(int(p.ContainerPort)) + "/" + p.Protocol)
}

// exposed returns the ports to declare as exposed, which publishing requires.
func (s *ContainerSpec) exposed() nat.PortSet {
	set := nat.PortSet{}
	for _, p := range s.Ports {
		set[p.key()] = struct{}{}
	}
	return set
}

func (s *ContainerSpec) bindings() nat.PortMap {
	m := nat.PortMap{}
	for _, p := range s.Ports {
		m[p.key()] = append(m[p.key()], nat.PortBinding{HostIP: publishIP, HostPort: strconv.Itoa(int(p.HostPort))})
	}
	return m
}

// portsOf returns the bindings, sorted. Malformed ones are dropped.
func portsOf(m nat.PortMap) []Port {
	var out []Port
	for key, bindings := range m {
		for _, b := range bindings {
			host, err := strconv.ParseUint(b.HostPort, 10, 16)
			inside, err2 := strconv.ParseUint(key.Port(), 10, 16)
			if err == nil && err2 == nil {
				out = append(out, Port{ContainerPort: uint16(inside), HostPort: uint16(host), Protocol: key.Proto()})
			}
		}
	}
	slices.SortFunc(out, Port.Compare)
	return slices.Compact(out)
}

// portInUse returns a fixed host port, of a container that did not start, that cannot be bound now. The engine's refusal has
// the status of any internal failure, so portInUse binds each port as the engine would. That requires an engine in this
// process's network namespace: the result is false for an engine that may be on another host. Without root, privileged ports
// are not checked.
func (e *Engine) portInUse(ctx context.Context, c *client.Client, id string) (Port, bool) {
	if e.host.network != "unix" {
		return Port{}, false
	}
	raw, err := inspect(ctx, c, id)
	if err != nil || raw.State.Running {
		return Port{}, false
	}
	for _, p := range portsOf(raw.HostConfig.PortBindings) {
		if p.HostPort != 0 && taken(ctx, p) {
			return p, true
		}
	}
	return Port{}, false
}

// taken binds and releases the port, and reports whether it is in use.
func taken(ctx context.Context, p Port) bool {
	var lc net.ListenConfig
	var held io.Closer
	var err error
	address := net.JoinHostPort(publishIP, strconv.Itoa(int(p.HostPort)))
	if p.Protocol == "udp" {
		held, err = lc.ListenPacket(ctx, "udp4", address)
	} else {
		held, err = lc.Listen(ctx, "tcp4", address)
	}
	if err == nil {
		held.Close()
	}
	return errors.Is(err, unix.EADDRINUSE)
}
