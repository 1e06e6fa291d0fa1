package netentry

import (
	"net"
	"strconv"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Destination returns what a sandbox reached or was denied as an entry of a policy names it. Entries exist for names and for protocols with
// ports only.
func Destination(d *agboxv1.NetworkDestination) string {
	addr := d.GetAddress()
	switch {
	case addr == "" && len(d.GetNames()) > 0:
		return d.GetNames()[0]
	case d.GetHost():
		addr = "host"
	}
	if d.GetPort() > 0 {
		addr = net.JoinHostPort(addr, strconv.Itoa(int(d.GetPort())))
	}
	return addr + "/" + d.GetProtocol()
}
