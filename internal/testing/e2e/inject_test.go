//go:build docker

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/testing/certs"
	"github.com/agbox/agbox/internal/testing/netns"
)

// secureSite is a server of HTTPS in a network namespace of its own, and the addresses of names that lead to it.
type secureSite struct {
	testing.TB
	addr      string
	authority *certs.Authority
	names     string // the address of a server of DNS

	mu   sync.Mutex
	seen []string // "host authorization" of each request
}

func newSecureSite(t *testing.T, trusted, untrusted []string) *secureSite {
	t.Helper()
	s := &secureSite{TB: t, authority: certs.New(t)}
	block := fmt.Sprintf("198.18.%d", rand.IntN(256)) // of no sandbox, and of no network but this host's
	s.addr = block + ".2"
	world := netns.New(t, "world")
	link := fmt.Sprintf("agx%08x", rand.Uint32())
	host := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	host("link add " + link + " type veth peer name eth0 netns " + world.Path())
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", link).Run() }) // it may be gone with the namespace
	host("addr add " + block + ".1/24 dev " + link)
	host("link set " + link + " up")
	world.IP(t, "addr add "+s.addr+"/24 dev eth0")
	world.IP(t, "link set eth0 up")

	certificates := map[string]*tls.Certificate{}
	addresses := map[string][]string{}
	issue := func(by *certs.Authority, names []string) {
		for _, name := range names {
			addresses[name] = []string{s.addr}
			cert, key := by.Issue(name, func(c *x509.Certificate) {
				c.ExtKeyUsage, c.DNSNames = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []string{name}
			})
			pair := must(tls.LoadX509KeyPair(cert, key))(t)
			certificates[name] = &pair
		}
	}
	issue(s.authority, trusted)
	issue(certs.New(t), untrusted)
	s.names = nameServer(t, addresses)
	var l net.Listener
	if err := world.Do(func() (err error) { l, err = net.Listen("tcp", s.addr+":443"); return err }); err != nil { //nolint:noctx // it lives as long as the test
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0), // clients that trust others
		TLSConfig: &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { //nolint:gosec // for this test's clients
			if c := certificates[hello.ServerName]; c != nil {
				return c, nil
			}
			return nil, fmt.Errorf("%q is not served", hello.ServerName)
		}},
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.ServeTLS(l, "", "") })
	t.Cleanup(func() { server.Close(); serving.Wait() })
	return s
}

func (s *secureSite) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Host+" "+strings.Join(r.Header.Values("Authorization"), ", "))
	s.mu.Unlock()
	_, _ = io.WriteString(w, "hello of "+r.Host)
}

// took returns what the server has seen since the last call.
func (s *secureSite) took() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := strings.Join(s.seen, "\n")
	s.seen = nil
	return seen
}

func (s *secureSite) mustSee(want string) {
	s.Helper()
	if got := s.took(); got != want {
		s.Errorf("the server saw %q, want %q", got, want)
	}
}

// A secret is added to requests on their way out, and nothing in the sandbox has it: also while the daemon is dead.
func TestInjectedSecrets(t *testing.T) {
	t.Parallel()
	site := newSecureSite(t, []string{"api.example", "other.example", "later.example"}, []string{"false.example"})
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.engine = fmt.Sprintf("resolvers = [%q, \"192.0.2.53\"]\n", site.names)
	d.env = []string{"SSL_CERT_FILE=" + site.authority.File}
	d.start()
	const value, next = "s3cret-0123456789", "s3cret-of-the-next-day"
	source := newSecretFile(t, value+"\n")
	token := &agboxv1.SecretSpec{Name: "token", File: source.path}
	for _, host := range []string{"api.example", "false.example"} {
		token.Inject = append(token.Inject, &agboxv1.InjectRule{Host: host, Header: "Authorization: Bearer ${token}"})
	}
	spec := &agboxv1.CreateSpec{
		Image: baseImage, Secrets: []*agboxv1.SecretSpec{token}, Mounts: []*agboxv1.MountSpec{{Source: filepath.Join(binaries, "fetch"), Target: "/bin/fetch"}},
		Network: &agboxv1.NetworkSpec{Mode: "internet", Allow: []string{site.addr}}, // a private address
	}
	id := d.named("web", proto.CloneOf(spec))
	d.await(id, ready)
	fetches := func(name, want string) {
		t.Helper()
		if got := strings.TrimSpace(d.sh(id, "fetch https://"+name+"/")); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	fetches("api.example", "200 HTTP/2.0 hello of api.example")
	site.mustSee("api.example Bearer " + value)
	fetches("false.example", "502 HTTP/2.0 ")
	fetches("other.example", "200 HTTP/2.0 hello of other.example") // the image trusts nothing: the host's authorities stand in
	site.mustSee("other.example Bearer of-the-sandbox")

	// What the image trusts from now on, programs trust instead.
	for _, c := range []struct{ authority, want string }{
		{certs.New(t).File, "certificate signed by unknown authority"}, {site.authority.File, "200 HTTP/2.0 hello of other.example"},
	} {
		root := must(d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, User: "root", Command: []string{
			"sh", "-c", "mkdir -p /etc/ssl/certs; cat >/etc/ssl/certs/ca-certificates.crt <<'E'\n" + d.read(c.authority) + "E\n",
		}}))(t)
		if st := d.ended(root.GetExecId()); st.GetState() != finished {
			t.Fatal(st)
		}
		d.eventually("programs trust what the image trusts", func() error {
			site.took()
			if got := d.sh(id, "fetch https://other.example/"); !strings.Contains(got, c.want) {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
	}
	fetches("api.example", "200 HTTP/2.0 hello of api.example")
	site.mustSee("other.example Bearer of-the-sandbox\napi.example Bearer " + value)

	held := d.sh(id, "cat /proc/*/environ /run/agbox/*/exec/* /run/agbox/out/secrets/* 2>/dev/null | strings; ls /run/agbox/out/secrets")
	if strings.Contains(held, value) || !strings.Contains(held, "SSL_CERT_FILE=/run/agbox/out/secrets/_authority") || !strings.HasSuffix(held, "\n_authority\n") {
		t.Errorf("in the sandbox: %s", held)
	}
	inspected := d.docker("inspect", naming.Primary(id))
	described := d.agbox("describe", "web")
	if !strings.Contains(described, "token of "+source.path+", added to requests for api.example, false.example") {
		t.Error(described)
	}
	handle := must(d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id}))(t).GetSandbox()
	d.agbox("backup", filepath.Join(d.home, "b.backup"))
	d.leaks(value, inspected, described, handle.String(), fmt.Sprint(d.events(id)))

	source.replace(next + "\n")
	d.eventually("requests have the new value", func() error {
		d.sh(id, "fetch https://api.example/")
		if got := site.took(); got != "api.example Bearer "+next {
			return fmt.Errorf("the server saw %q", got)
		}
		return nil
	})
	d.kill()
	out, err := exec.Command("docker", "exec", naming.Primary(id), "fetch", "https://api.example/").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "200 HTTP/2.0 hello of api.example") {
		t.Errorf("without the daemon: %v\n%s", err, out)
	}
	site.mustSee("api.example Bearer " + next)
	d.start()

	spec.Secrets[0].Inject[0].Host = "later.example"
	d.update(id, proto.CloneOf(spec))
	d.eventually("the rules are the new ones", func() error {
		d.sh(id, "fetch https://later.example/ https://api.example/")
		if got := site.took(); got != "later.example Bearer "+next+"\napi.example Bearer of-the-sandbox" {
			return fmt.Errorf("the server saw %q", got)
		}
		return nil
	})
	d.stopBox(id)
	d.await(id, stopped)
	d.restart()
	d.agbox("resume", "web", "--wait")
	fetches("later.example", "200 HTTP/2.0 hello of later.example")
	site.mustSee("later.example Bearer " + next)
	d.remove(id)
	if left := must(filepath.Glob(filepath.Join(d.data("dns"), "br-*")))(t); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if err := syscall.Kill(d.nameFilter(), syscall.SIGKILL); err != nil { // it would end a minute after its last sandbox
		t.Error(err)
	}
}

// clientSteps are programs that agents use, each with what it prints or the server sees of it.
var clientSteps = []struct{ what, script string }{
	{"curl", `test "$(curl -sS https://api.example/)" = 'hello of api.example'`},
	{"curl over HTTP/1.1", `test "$(curl -sS --http1.1 -d body https://api.example/)" = 'hello of api.example'`},
	{"Python", `python3 -c 'import urllib.request as u; assert u.urlopen("https://api.example/").read() == b"hello of api.example"'`},
	{"requests of Python", `python3 -c 'from pip._vendor import requests as r; assert r.get("https://api.example/").text == "hello of api.example"'`},
	{"Node", `node -e 'require("https").get("https://api.example/", r => r.on("data", d => { if (d != "hello of api.example") process.exit(1) }))'`},
	{"fetch of Node", `node -e 'fetch("https://api.example/").then(r => r.text()).then(t => { if (t != "hello of api.example") process.exit(1) })'`},
	{"npm", `npm view --registry https://api.example/ --fetch-retries 0 left-pad 2>&1 | grep -q -i 'json'`}, // the server speaks another protocol
	{"git", `git ls-remote https://api.example/repo.git; true`},                                             // as above: what counts is what the server saw
	{"OpenSSL", `printf 'GET / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n' |
		openssl s_client -quiet -verify_return_error -servername api.example -connect api.example:443 2>/dev/null | grep 'hello of api.example'`},
	{"a WebSocket's upgrade", `curl -sS --http1.1 -H 'Connection: Upgrade' -H 'Upgrade: websocket' https://api.example/ | grep 'hello of api.example'`},
}

// Programs trust the authority of their sandbox and send what they always send, and the server sees the secret.
func TestRealClientsOfInjectedHosts(t *testing.T) {
	if *realAgents == "" {
		t.Skip("needs the image agbox-dev:dev, which takes minutes to make: make test-agents does")
	}
	t.Parallel()
	site := newSecureSite(t, []string{"api.example", "other.example"}, nil)
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.engine = fmt.Sprintf("resolvers = [%q, \"192.0.2.53\"]\n", site.names)
	d.env = []string{"SSL_CERT_FILE=" + site.authority.File}
	d.start()
	source := newSecretFile(t, "s3cret")
	id := d.create(&agboxv1.CreateSpec{
		Image: *devImage, Network: &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{site.addr + ":1"}},
		Secrets: []*agboxv1.SecretSpec{{Name: "k", File: source.path, Inject: []*agboxv1.InjectRule{{Host: "api.example", Header: "Authorization: Bearer ${k}"}}}},
	})
	d.await(id, ready)
	for _, step := range clientSteps {
		e := d.exec(id, "bash", "-c", step.script)
		st := d.ended(e.GetExecId())
		seen := site.took()
		if st.GetState() != finished || !strings.HasPrefix(seen, "api.example Bearer s3cret") {
			t.Errorf("%s: %s %s; the server saw %q\n%s%s", step.what, st.GetState(), st.GetError(), seen, d.read(e.GetStdoutLogPath()), d.read(e.GetStderrLogPath()))
		}
	}
	if got := d.sh(id, "curl -sS https://other.example/ 2>&1 || true"); !strings.Contains(got, "Could not resolve host") {
		t.Errorf("another host: %q", got)
	}
	d.remove(id)
	if err := syscall.Kill(d.nameFilter(), syscall.SIGKILL); err != nil { // it would end a minute after its last sandbox
		t.Error(err)
	}
}

// injecting starts a daemon that trusts a site with api.example and other.example, and returns a spec by which a secret is added to the requests for the former.
func injecting(t *testing.T, host string) (*daemon, *secureSite, *agboxv1.CreateSpec) {
	t.Helper()
	site := newSecureSite(t, []string{"api.example", "other.example"}, nil)
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	if host != "" {
		d.host = host
	}
	d.engine = fmt.Sprintf("resolvers = [%q, \"192.0.2.53\"]\n", site.names)
	d.env = []string{"SSL_CERT_FILE=" + site.authority.File}
	d.start()
	t.Cleanup(func() {
		if pid := d.nameFilter(); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it would end a minute after its last sandbox
		}
	})
	return d, site, &agboxv1.CreateSpec{
		Image: baseImage, Mounts: []*agboxv1.MountSpec{{Source: filepath.Join(binaries, "fetch"), Target: "/bin/fetch"}},
		Network: &agboxv1.NetworkSpec{Mode: "internet", Allow: []string{site.addr}},
		Secrets: []*agboxv1.SecretSpec{{
			Name: "k", File: newSecretFile(t, "s3cret-0123456789").path, Inject: []*agboxv1.InjectRule{{Host: "api.example", Header: "Authorization: Bearer ${k}"}},
		}},
	}
}

// A restored sandbox trusts what it trusted before. A snapshot has neither the value nor the authority, and a sandbox of it can have rules of its own.
func TestInjectedSecretsInBackupsAndSnapshots(t *testing.T) {
	t.Parallel()
	d, site, spec := injecting(t, "")
	id := d.named("web", proto.CloneOf(spec))
	d.await(id, ready)
	fetches := func(id, want string) {
		t.Helper()
		d.eventually("the answer", func() error {
			site.took()
			got := d.sh(id, "fetch https://api.example/")
			if seen := site.took(); !strings.Contains(got, "200 HTTP/2.0") || seen != "api.example Bearer "+want {
				return fmt.Errorf("%q; the server saw %q", got, seen)
			}
			return nil
		})
	}
	fetches(id, "s3cret-0123456789")
	trusted := d.sh(id, "cat /run/agbox/out/secrets/_authority")
	file := filepath.Join(d.home, "b.backup")
	d.agbox("backup", file)
	d.kill()
	if out, err := d.command("restore", file).CombinedOutput(); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	d.start()
	d.await(id, ready)
	if got := d.sh(id, "cat /run/agbox/out/secrets/_authority"); got != trusted {
		t.Error("it trusts another authority")
	}
	fetches(id, "s3cret-0123456789")

	made := strings.Fields(d.agbox("snapshot", "create", "web", "kept", "-o", "jsonpath=.image"))
	image := made[len(made)-1] // behind what it says of its progress
	plain := proto.CloneOf(spec)
	plain.Image, plain.Secrets = image, nil
	other := proto.CloneOf(spec)
	other.Image = image
	ids := []string{d.create(plain), d.create(other)}
	d.await(ids[0], ready)
	if got := d.sh(ids[0], "env; ls -a /run/agbox/out/secrets 2>&1; true"); strings.Contains(got, "SSL_CERT_FILE") || strings.Contains(got, "_authority") {
		t.Errorf("in a sandbox of the snapshot: %s", got)
	}
	d.await(ids[1], ready)
	fetches(ids[1], "s3cret-0123456789")
	if got := d.sh(ids[1], "cat /run/agbox/out/secrets/_authority"); got == trusted || strings.Count(got, "BEGIN CERTIFICATE") != 2 {
		t.Errorf("a sandbox of the snapshot trusts %s", got)
	}
	for _, one := range append(ids, id) {
		d.remove(one)
	}
	d.agbox("snapshot", "rm", "kept")
}

// Requests of gVisor's own network stack get the headers too, and of the host's, which gVisor uses in the container's network namespace.
func TestGVisorInjectedSecrets(t *testing.T) {
	runsc := os.Getenv(runscVariable)
	if runsc == "" {
		t.Skip(runscVariable + " is not set: gVisor's runtime takes minutes to build, see make test-runsc")
	}
	e := newEngine(t, runtimes(t, runsc, map[string]string{"own": "--overlay2=none", "hosts": "--overlay2=none --network=host"})...)
	// The site and the daemon belong to the engine's network namespace.
	ns := must(os.Open(e.Netns()))(t)
	defer ns.Close()
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	d, site, spec := injecting(t, e.Host())
	for _, runtime := range []string{"hosts", "own"} {
		spec.Runtime = runtime
		id := d.create(proto.CloneOf(spec))
		d.await(id, ready)
		got := d.sh(id, "fetch https://api.example/ https://other.example/")
		seen, want := site.took(), "api.example Bearer s3cret-0123456789\nother.example Bearer of-the-sandbox"
		if strings.Contains(fmt.Sprint(d.sandbox(id).GetWarnings()), "no host name resolves") { // it does not reach the engine's server of DNS
			want = ""
		}
		if seen != want || runtime == "hosts" && want == "" {
			t.Errorf("%s: %q; the server saw %q", runtime, got, seen)
		}
		d.remove(id)
	}
}
