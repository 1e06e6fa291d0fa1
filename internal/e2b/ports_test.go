package e2b_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agbox/agbox/internal/testing/conformance"
)

// TestPorts: by header and by host name. On the fake engine a sandbox's loopback is the host's.
func TestPorts(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	id := f.create(map[string]any{"autoResume": map[string]any{"enabled": true}})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = buf.Flush()
			_, _ = io.Copy(conn, buf)
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", fmt.Sprint(r.Host, r.Header.Get("X-Access-Token"), r.Header.Get("E2b-Sandbox-Id")))
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), body)
	}))
	t.Cleanup(app.Close)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(app.URL, "http://"))
	send := f.send
	for _, host := range []string{port + "-" + id + ".localhost:3000", port + "-" + id + "-more.localhost"} {
		if a := send(host, "POST", "/a%2Fb?c=d", "body", "X-Access-Token", "secret"); a.body != "POST /a%2Fb?c=d body" || a.header.Get("X-Seen") != host {
			t.Errorf("%s: %+v", host, a)
		}
	}
	byHeader := []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", port}
	if a := send("x", "PUT", "/", strings.Repeat("y", 1<<20), byHeader...); a.code != http.StatusOK || len(a.body) != 1<<20+len("PUT / ") || a.header.Get("X-Seen") != "x" {
		t.Errorf("%d, %d bytes", a.code, len(a.body))
	}
	if a := send("x", "GET", "/", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "99999"); a.code != http.StatusBadRequest {
		t.Errorf("%+v", a)
	}
	closed := httptest.NewServer(nil)
	_, none, _ := net.SplitHostPort(strings.TrimPrefix(closed.URL, "http://"))
	closed.Close()
	if a := send(none+"-"+id+".localhost", "GET", "/", ""); a.code != http.StatusBadGateway || !strings.Contains(a.body, id) {
		t.Errorf("%+v", a)
	}

	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+id+"/pause", nil)
	if a := send(port+"-"+id+".localhost", "GET", "/woken", ""); a.body != "GET /woken " {
		t.Errorf("%+v", a)
	}

	at, err := url.Parse(f.url)
	f.must(err)
	conn, err := net.Dial("tcp", at.Host)
	f.must(err)
	defer conn.Close()
	fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: %s-%s.localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", port, id)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	f.must(err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	for _, text := range []string{"one\n", "two\n"} {
		fmt.Fprint(conn, text)
		if got, err := in.ReadString('\n'); got != text {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// TestPortsOfAnAddressThatIsUsedAgain: on the fake engine all sandboxes have the same address, so a deleted one hands it to the next. Each request
// has a connection of its own, so none reaches a program through what is left of another sandbox.
func TestPortsOfAnAddressThatIsUsedAgain(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) }))
	var connections atomic.Int32
	app.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	app.Start()
	t.Cleanup(app.Close)
	_, port, _ := net.SplitHostPort(app.Listener.Addr().String())
	const rounds = 3
	gone := ""
	for range rounds {
		id := f.create(nil)
		for range 2 {
			if a := f.send(port+"-"+id+".localhost", "GET", "/", ""); a.code != http.StatusOK {
				t.Errorf("%+v", a)
			}
		}
		if gone != "" {
			if a := f.send(port+"-"+gone+".localhost", "GET", "/", ""); a.code != http.StatusBadGateway || !strings.Contains(a.body, gone) {
				t.Errorf("a deleted sandbox: %+v", a)
			}
		}
		f.want(http.StatusNoContent, "", "DELETE", "/sandboxes/"+id, nil)
		gone = id
	}
	if n := connections.Load(); n != 2*rounds {
		t.Errorf("%d connections for %d requests", n, 2*rounds)
	}
}

// TestPortsWithoutProxies runs TestPorts in a process whose environment has a proxy, as a process reads that once. Nothing goes to the proxy.
func TestPortsWithoutProxies(t *testing.T) {
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(proxy.Close)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPorts$", "-test.v")
	cmd.Env = append(os.Environ(), "NO_PROXY=", "no_proxy=")
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		cmd.Env = append(cmd.Env, name+"="+proxy.URL, strings.ToLower(name)+"="+proxy.URL)
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestPorts") || asked.Load() > 0 {
		t.Errorf("%v, the proxy was asked %d times: %s", err, asked.Load(), out)
	}
}

// send makes a request for a host name, with pairs of header names and values.
func (f *fixture) send(host, method, path, body string, header ...string) answer {
	f.Helper()
	req, err := http.NewRequestWithContext(f.Context(), method, f.url+path, strings.NewReader(body))
	f.must(err)
	req.Host = host
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	f.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	f.must(err)
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// TestPrivateTraffic: ports of a sandbox without public traffic need its token, which is the same after a restart and which programs in it do not
// see. A request without it does not resume the sandbox. Files and commands have a token of their own.
func TestPrivateTraffic(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	create := func(public bool) (sb sandbox) {
		f.want(http.StatusCreated, "", "POST", "/v2/sandboxes", map[string]any{
			"autoResume": map[string]any{"enabled": true}, "network": map[string]any{"allowPublicTraffic": public},
		}).into(t, &sb)
		return sb
	}
	private, other, public := create(false), create(false), create(true)
	if public.TrafficAccessToken != nil || private.TrafficAccessToken == nil || *private.TrafficAccessToken == private.EnvdAccessToken {
		t.Fatalf("%+v, %+v", public, private)
	}
	if f.info(private.SandboxID).Network.AllowPublicTraffic || !f.info(public.SandboxID).Network.AllowPublicTraffic {
		t.Error("the network of a sandbox is not that of its create")
	}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "served ", r.Header.Get("E2b-Traffic-Access-Token"))
	}))
	t.Cleanup(app.Close)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(app.URL, "http://"))
	get := func(sb sandbox, token string) answer {
		return f.send(port+"-"+sb.SandboxID+".localhost", "GET", "/", "", "E2b-Traffic-Access-Token", token)
	}
	token := *private.TrafficAccessToken
	if a := get(private, token); a.body != "served " {
		t.Errorf("%+v", a)
	}
	if a := get(public, token); a.body != "served " {
		t.Errorf("%+v", a)
	}
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+private.SandboxID+"/pause", nil)
	for _, wrong := range []string{"", "x", token[1:], *other.TrafficAccessToken, private.EnvdAccessToken, f.key} {
		if a := get(private, wrong); a.code != http.StatusForbidden || !strings.Contains(a.body, "e2b-traffic-access-token") || strings.Contains(a.body, token) {
			t.Errorf("token %q: %+v", wrong, a)
		}
	}
	if is := f.info(private.SandboxID); is.State != "paused" {
		t.Errorf("it is %s", is.State)
	}
	b := box{f, other.SandboxID, other.EnvdAccessToken, "root"}
	if r := b.run(false, sh("echo x")); r.stdout != "x\n" {
		t.Errorf("%+v", r)
	}
	f.daemon.Restart(t)
	f.awaitBack()
	var again sandbox
	f.want(http.StatusCreated, "", "POST", "/sandboxes/"+private.SandboxID+"/connect", nil).into(t, &again)
	if again.TrafficAccessToken == nil || *again.TrafficAccessToken != token {
		t.Errorf("the token was %s, and is %v", token, again.TrafficAccessToken)
	}
	if a := get(private, token); a.body != "served " {
		t.Errorf("%+v", a)
	}
	if a := get(private, ""); a.code != http.StatusForbidden {
		t.Errorf("%+v", a)
	}
}

// A program may answer before it has read the request; the rest of that still reaches it.
func TestAnAnswerBeforeTheEndOfTheRequest(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	id := f.create(nil)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		_, _ = io.WriteString(w, "started\n")
		_ = control.Flush()
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(app.Close)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(app.URL, "http://"))
	body, rest := io.Pipe()
	defer rest.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url, body)
	f.must(err)
	req.Host, req.ContentLength = port+"-"+id+".localhost", 10
	go func() { _, _ = io.WriteString(rest, "12345") }()
	resp, err := http.DefaultClient.Do(req)
	f.must(err)
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if got, err := in.ReadString('\n'); got != "started\n" {
		t.Fatalf("%q, %v", got, err)
	}
	_, err = io.WriteString(rest, "67890")
	f.must(err)
	f.must(rest.Close())
	if got, err := io.ReadAll(in); string(got) != "1234567890" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
