//go:build docker

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// listening is a sandbox whose main process serves its name, and whose service does too; the first on a port of the host
// that may be 0.
func listening(hostPort uint32) *agboxv1.CreateSpec {
	db := web("db", 0)
	db.Ports = []*agboxv1.PortSpec{{ContainerPort: 8080}}
	return &agboxv1.CreateSpec{
		Image: baseImage, Ports: []*agboxv1.PortSpec{{ContainerPort: 8080, HostPort: hostPort}}, RequiredServices: []*agboxv1.ServiceSpec{db},
		Command: []string{"sh", "-c", "mkdir -p /tmp/w; echo primary >/tmp/w/name; exec httpd -f -p 8080 -h /tmp/w"},
	}
}

// wantServed waits for the shown ports of the primary and the service to answer with their names, and returns them.
func (d *daemon) wantServed(id string) map[string]uint32 {
	d.Helper()
	ports := map[string]uint32{}
	d.eventually("the ports answer", func() error {
		for _, p := range d.sandbox(id).GetPorts() {
			ports[p.GetServiceName()] = p.GetHostPort()
		}
		for service, name := range map[string]string{"": "primary\n", "db": "db\n"} {
			if got, err := getName(ports[service]); err != nil || got != name {
				return fmt.Errorf("port %d of %q says %q, %w", ports[service], service, got, err)
			}
		}
		return nil
	})
	return ports
}

func getName(port uint32) (string, error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/name", port))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// listeners are the addresses, as the kernel writes them, of the listeners at a TCP port of this host.
func (d *daemon) listeners(port uint32) (addresses []string) {
	d.Helper()
	for line := range strings.Lines(d.read("/proc/net/tcp") + d.read("/proc/net/tcp6")) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "0A" { // LISTEN
			continue
		}
		if address, hex, _ := strings.Cut(f[1], ":"); hex == fmt.Sprintf("%04X", port) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

func TestPortsArePublishedOnLoopbackAlone(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(listening(0))
	d.await(id, ready)
	ports := d.wantServed(id)
	for _, port := range ports {
		if got := d.listeners(port); !slices.Equal(got, []string{"0100007F"}) {
			t.Errorf("at port %d there listens %v", port, got)
		}
	}
	d.restart()
	if again := d.wantServed(id); fmt.Sprint(again) != fmt.Sprint(ports) {
		t.Errorf("after a restart of the daemon the ports are %v, not %v", again, ports)
	}
	d.halt(id)
	if left := d.sandbox(id).GetPorts(); len(left) > 0 {
		t.Errorf("a stopped sandbox shows %v", left)
	}
	d.resume(id)
	d.wantServed(id)
	d.remove(id)
}

func TestAPortThatIsTaken(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	other := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer other.Close()
	port := uint32(other.Addr().(*net.TCPAddr).Port)
	id := d.create(listening(port))
	d.eventually("the status says so", func() error {
		sb := d.sandbox(id)
		if s := sb.GetStatusMessage(); sb.GetState() != pending || !strings.Contains(s, fmt.Sprint(port)) || !strings.Contains(s, "in use") {
			return fmt.Errorf("%s: %q", sb.GetState(), s)
		}
		return nil
	})
	other.Close()
	d.await(id, ready)
	if ports := d.wantServed(id); ports[""] != port {
		t.Errorf("published are %v", ports)
	}
	d.wantRows(id, "ACCEPTED PREPARING SERVICE_READY(db) READY")

	req := &agboxv1.CreateSandboxRequest{CreateSpec: listening(port)}
	_, err := d.CreateSandbox(d.ctx(), req)
	if text := status.Convert(err).Message(); !isCode(err, codes.AlreadyExists) || !strings.Contains(text, fmt.Sprint(port)) || !strings.Contains(text, id) {
		t.Errorf("a second sandbox with the port: %v", err)
	}
	d.remove(id)
	heir := must(d.CreateSandbox(d.ctx(), req))(t).GetSandbox().GetSandboxId()
	d.await(heir, ready)
	d.wantServed(heir)
	d.remove(heir)
}
