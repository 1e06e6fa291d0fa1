package dockerx

import (
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/go-connections/nat"
)

func TestPortsOf(t *testing.T) {
	got := portsOf(nat.PortMap{
		"90/tcp":     {{HostIP: "127.0.0.1", HostPort: "9000"}},
		"80/udp":     {{HostIP: "127.0.0.1", HostPort: "1"}},
		"80/tcp":     {{HostIP: "127.0.0.1", HostPort: "3"}, {HostIP: "::1", HostPort: "3"}, {HostIP: "127.0.0.1", HostPort: "2"}},
		"exposed":    nil,
		"70/tcp":     nil,
		"70000/tcp":  {{HostPort: "1"}},
		"60/tcp":     {{HostPort: ""}},
		"nonsense/x": {{HostPort: "1"}},
	})
	want := []Port{{80, 2, "tcp"}, {80, 3, "tcp"}, {80, 1, "udp"}, {90, 9000, "tcp"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// refusingStart answers a start with 500, and an inspection with fixed host ports.
func refusingStart(running bool, bindings nat.PortMap) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/start") {
			answer(w, http.StatusInternalServerError, map[string]string{"message": "trouble"})
			return
		}
		answerInspect(w, map[string]any{
			"Id": "x", "State": map[string]any{"Running": running}, "HostConfig": map[string]any{"PortBindings": bindings},
		})
	}
}

func TestStartThatFailsForAPortInUse(t *testing.T) {
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	tcpPort, udpPort := strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port), strconv.Itoa(udp.LocalAddr().(*net.UDPAddr).Port)
	binding := func(key nat.Port, port string) nat.PortMap {
		return nat.PortMap{"1/tcp": {{HostPort: "0"}}, key: {{HostIP: publishIP, HostPort: port}}}
	}
	for name, tc := range map[string]struct {
		handle http.HandlerFunc
		class  error
		text   string
	}{
		"a TCP port in use":           {refusingStart(false, binding("80/tcp", tcpPort)), errdefs.ErrFailedPrecondition, tcpPort + "/tcp"},
		"a UDP port in use":           {refusingStart(false, binding("80/udp", udpPort)), errdefs.ErrFailedPrecondition, udpPort + "/udp"},
		"ports that are chosen":       {refusingStart(false, binding("80/tcp", "0")), errdefs.ErrInternal, "trouble"},
		"no ports":                    {refusingStart(false, nil), errdefs.ErrInternal, "trouble"},
		"it runs, and holds its port": {refusingStart(true, binding("80/tcp", tcpPort)), errdefs.ErrInternal, "trouble"},
	} {
		e, _ := newEngine(t, newServer(t, tc.handle).host)
		err := e.StartContainer(t.Context(), "x")
		wantClass(t, err, tc.class)
		if !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
