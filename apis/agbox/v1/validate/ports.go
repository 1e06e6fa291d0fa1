package validate

import (
	"fmt"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	maxPorts = 128
	maxPort  = 65535
)

// port is one end of a published port.
type port struct {
	number   uint32
	protocol string
}

// checkPorts checks the ports of one container.
func checkPorts(errs *Errors, field string, ports []*agboxv1.PortSpec) {
	first := map[port]string{}
	checkEach(errs, field, ports, maxPorts, func(at string, p *agboxv1.PortSpec) {
		if n := p.GetContainerPort(); n < 1 || n > maxPort {
			errs.add(at+".container_port", "must be 1 to %d", maxPort)
		}
		if p.GetHostPort() > maxPort {
			errs.add(at+".host_port", "must be 0 (the engine chooses) or 1 to %d", maxPort)
		}
		checkWord(errs, at+".protocol", p.GetProtocol(), "tcp", "udp")
		key := port{p.GetContainerPort(), p.GetProtocol()}
		if other, twice := first[key]; twice {
			errs.add(at+".container_port", "%d/%s is published by %s already", key.number, key.protocol, other)
			return
		}
		first[key] = at
	})
}

// checkHostPorts checks that no two containers ask for the same port of the host.
func checkHostPorts(errs *Errors, spec *agboxv1.CreateSpec) {
	first := map[port]string{}
	check := func(prefix string, ports []*agboxv1.PortSpec) {
		for i, p := range ports[:min(len(ports), maxPorts)] {
			at := fmt.Sprintf("%sports[%d]", prefix, i)
			key := port{p.GetHostPort(), p.GetProtocol()}
			if other, twice := first[key]; twice && key.number != 0 {
				errs.add(at+".host_port", "%d/%s is taken by %s already", key.number, key.protocol, other)
				continue
			}
			first[key] = at
		}
	}
	check("", spec.GetPorts())
	for _, s := range services(spec) {
		check(s.path+".", s.spec.GetPorts())
	}
}
