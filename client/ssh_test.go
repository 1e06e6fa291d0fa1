package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/testing/conformance/fakehost"
)

// envSSH names the directory of a fakeSSH, which the process then is one of.
const envSSH = "AGBOX_TEST_SSH"

func TestMain(m *testing.M) {
	fakehost.RunShim()
	if dir := os.Getenv(envSSH); dir != "" {
		os.Exit(beSSH(dir))
	}
	os.Exit(m.Run())
}

// fakeSSH is a program ssh in $PATH that reaches the "far side" on this host.
type fakeSSH struct {
	*testing.T
	dir string
}

func newSSH(t *testing.T) *fakeSSH {
	t.Helper()
	f := &fakeSSH{t, t.TempDir()}
	self, err := os.Executable()
	f.must(err)
	f.must(os.WriteFile(filepath.Join(f.dir, "ssh"), []byte("#!/bin/sh\nexec "+self+` "$@"`+"\n"), 0o755))
	t.Setenv("PATH", f.dir+":"+os.Getenv("PATH"))
	t.Setenv(envSSH, f.dir)
	return f
}

// does sets what each further process does: connect to a socket, or fail with "CODE TEXT".
func (f *fakeSSH) does(what string) {
	f.Helper()
	f.must(os.WriteFile(filepath.Join(f.dir, "does"), []byte(what), 0o600))
}

func (f *fakeSSH) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// processes returns the PIDs of all processes so far.
func (f *fakeSSH) processes() (pids []int) {
	f.Helper()
	file, err := os.Open(filepath.Join(f.dir, "calls"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	f.must(err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		pid, err := strconv.Atoi(strings.Fields(lines.Text())[0])
		f.must(err)
		pids = append(pids, pid)
	}
	return pids
}

// gone reports whether a process has ended and was waited for.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func beSSH(dir string) int {
	calls, err := os.OpenFile(filepath.Join(dir, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 99
	}
	fmt.Fprintf(calls, "%d %q\n", os.Getpid(), os.Args[1:])
	does, err := os.ReadFile(filepath.Join(dir, "does"))
	if err != nil {
		return 99
	}
	if code, text, ok := strings.Cut(string(does), " "); ok {
		fmt.Fprint(os.Stderr, text)
		n, _ := strconv.Atoi(code)
		return n
	}
	conn, err := client.DialSocket(context.Background(), string(does))
	if err != nil {
		fmt.Fprintln(os.Stderr, "agboxd: "+err.Error())
		return 1
	}
	go func() { _, _ = io.Copy(conn, os.Stdin); _ = conn.CloseWrite() }()
	_, _ = io.Copy(os.Stdout, conn)
	return 0
}

func (f *fakeSSH) dial(o client.Options) *client.Client {
	f.Helper()
	c, err := client.DialWith("ssh://me@far", o)
	f.must(err)
	f.Cleanup(func() { _ = c.Close() })
	return c
}

func TestEachConnectionOverSSHIsOneProcess(t *testing.T) {
	d, _ := newDaemon(t)
	f := newSSH(t)
	f.does(d.socket)
	c := f.dial(client.Options{Patience: time.Minute})
	for range 3 {
		_, err := c.Ping(t.Context())
		f.must(err)
	}
	first := f.processes()
	if len(first) != 1 {
		t.Fatalf("processes %v", first)
	}
	// ^C in a terminal reaches ssh as well
	f.must(syscall.Kill(first[0], syscall.SIGINT))
	_, err := c.Ping(t.Context())
	if f.must(err); len(f.processes()) != 1 {
		t.Error("SIGINT ended ssh")
	}
	f.must(syscall.Kill(first[0], syscall.SIGKILL))
	_, err = c.Ping(t.Context())
	f.must(err)
	again := f.processes()
	if len(again) != 2 || !gone(first[0]) {
		t.Fatalf("processes %v", again)
	}
	f.must(c.Close())
	if !gone(again[1]) {
		t.Error("Close leaves its ssh")
	}
}

func TestSSHFailuresSayWhatSSHSaid(t *testing.T) {
	f := newSSH(t)
	for _, tc := range []struct {
		does, want string
		code       codes.Code
	}{
		{"255 ssh: connect to host far port 22: Connection refused\r\n", "no agboxd at ssh://me@far: ssh: connect to host far port 22: Connection refused", codes.Unauthenticated},
		{"255 Warning: a\nPermission denied (publickey).\n", "Warning: a; Permission denied (publickey).", codes.Unauthenticated},
		{"127 bash: line 1: agboxd: command not found\n", "agboxd: command not found; install agboxd on that host", codes.Unauthenticated},
		{"2 agboxd: no agboxd at /nowhere/s\n", "no agboxd at ssh://me@far: no agboxd at /nowhere/s", codes.Unauthenticated},
		{"1 agboxd: agboxd does not answer\n", "no agboxd at ssh://me@far: agboxd does not answer", codes.Unavailable},
		{"255 ", "ssh ended: exit status 255", codes.Unauthenticated},
		{"255 " + strings.Repeat("x", 100_000) + "\nthe end", "; the end", codes.Unauthenticated},
	} {
		f.does(tc.does)
		for _, patience := range []time.Duration{0, 100 * time.Millisecond} {
			c := f.dial(client.Options{Patience: patience})
			_, err := c.Ping(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) || client.Code(err) != tc.code || len(err.Error()) > 5000 {
				t.Errorf("%.50q: got %s %.300v", tc.does, client.Code(err), err)
			}
			f.must(c.Close()) // it may be trying again
		}
	}
	for _, pid := range f.processes() {
		if !gone(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	t.Setenv("PATH", "/nowhere")
	if _, err := f.dial(client.Options{Patience: time.Minute}).Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "install an OpenSSH client") {
		t.Errorf("without ssh: %v", err)
	}
}

// A subscription outlives both: what failed before may pass.
func TestACallOverSSHWaitsForARestart(t *testing.T) {
	d, plain := newDaemon(t)
	d.create(plain, "abcd")
	f := newSSH(t)
	f.does(d.socket)
	told := make(chan struct{}, 1)
	c := f.dial(client.Options{Patience: time.Minute, OnAway: func() { told <- struct{}{} }})
	_, err := c.Ping(t.Context())
	f.must(err)
	d.stop()
	f.does("255 ssh: the network is down\n") // a refusal only until a daemon was reached
	result := inBackground(func() (any, error) { return c.GetSandbox(t.Context(), "abcd") })
	<-told
	d.start()
	f.does(d.socket)
	if _, err := result(); err != nil {
		t.Error(err)
	}
}

// What is typed at a prompt takes longer than any patience.
func TestPatienceDoesNotCountAPrompt(t *testing.T) {
	d, _ := newDaemon(t)
	f := newSSH(t)
	l, err := net.Listen("unix", filepath.Join(f.dir, "s"))
	f.must(err)
	defer l.Close()
	f.does(l.Addr().String())
	c := f.dial(client.Options{Patience: 10 * time.Millisecond, OnAway: func() { t.Error("a prompt is reported as an absent daemon") }})
	result := inBackground(func() (any, error) { return c.Ping(t.Context()) })
	far, err := l.Accept()
	f.must(err)
	time.Sleep(1500 * time.Millisecond) // past awayNotice
	near, err := net.Dial("unix", d.socket)
	f.must(err)
	go func() { _, _ = io.Copy(near, far); _ = near.(*net.UnixConn).CloseWrite() }()
	go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
	if _, err := result(); err != nil {
		t.Error(err)
	}
}

func TestHostsThatAreNone(t *testing.T) {
	for host, want := range map[string]string{
		"http://x":                     `write a socket's path, ssh://`,
		"ssh://":                       "it names no host",
		"ssh:///run/s":                 "it names no host",
		"ssh://-oProxyCommand=touch x": "it is not a URL",
		"ssh://-oProxyCommand=x":       `the host starts with "-"`,
		"ssh://-l@h":                   `the user is empty, starts with "-"`,
		"ssh://@h":                     "the user is empty",
		"ssh://a;b@h":                  "characters that a shell would read",
		"ssh://%60id%60@h":             "characters that a shell would read",
		"ssh://h$(id)":                 "characters that a shell would read",
		"ssh://h:":                     "the port is empty",
		"ssh://h:x":                    "it is not a URL",
		"ssh://me:secret@h":            "it contains a password",
		"ssh://h/a?b":                  `it has a "?" or "#"`,
		"ssh://h/a%27;id;%27":          "the socket's path has a quote",
		"ssh://h/a%0Ab":                "control character",
		"tcp://h":                      "it names no port",
		"tcp://me@h:1":                 "write tcp://HOST:PORT",
		"tcp://h:1":                    "it needs a client certificate",
	} {
		c, err := client.Dial(host)
		if err == nil {
			_ = c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", host, err)
		}
	}
}

func TestArgumentsOfSSH(t *testing.T) {
	f := newSSH(t)
	f.does("255 no\n")
	for host, want := range map[string][]string{
		"ssh://far":                              {"--", "far", "agboxd", "dial-stdio"},
		"ssh://far/":                             {"--", "far", "agboxd", "dial-stdio"},
		"ssh://me@far:2222/run/x.sock":           {"-l", "me", "-p", "2222", "--", "far", "agboxd", "dial-stdio", "--socket", "'/run/x.sock'"},
		"ssh://[::1]:22/a b;$(id)`id`*":          {"-p", "22", "--", "::1", "agboxd", "dial-stdio", "--socket", "'/a b;$(id)`id`*'"},
		"ssh://me%40corp.example@far.example:22": {"-l", "me@corp.example", "-p", "22", "--", "far.example", "agboxd", "dial-stdio"},
	} {
		c, err := client.Dial(host)
		f.must(err)
		if _, err = c.Ping(t.Context()); err == nil {
			t.Errorf("%s: no error", host)
		}
		_ = c.Close()
		calls, err := os.ReadFile(filepath.Join(f.dir, "calls"))
		f.must(err)
		lines := strings.Split(strings.TrimSpace(string(calls)), "\n")
		want = slices.Concat([]string{"-T", "-o", "ConnectTimeout=30"}, want)
		if _, args, _ := strings.Cut(lines[len(lines)-1], " "); args != fmt.Sprintf("%q", want) {
			t.Errorf("%s: got %s, want %q", host, args, want)
		}
	}
}
