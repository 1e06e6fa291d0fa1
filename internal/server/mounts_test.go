package server_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/mountpolicy"
	"github.com/agbox/agbox/internal/server"
)

// listensAt makes a socket in a new directory of dir, where the test may write.
func listensAt(t *testing.T, dir string) string {
	t.Helper()
	parent, err := os.MkdirTemp(dir, "agbox-server-")
	if os.IsPermission(err) {
		t.Skipf("only root makes a directory in %s", dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	l, err := net.Listen("unix", filepath.Join(parent, "agent"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// SSH agents have their sockets in /run and /tmp. The tool git may have one of them there, and a mount of a spec may not; nor may the tool
// where its variable names a socket of the engine's or of agboxd's.
func TestASocketThatAToolNames(t *testing.T) {
	for _, dir := range []string{"/run", "/tmp"} {
		t.Run(dir, func(t *testing.T) {
			sock, home := listensAt(t, dir), t.TempDir()
			if err := os.MkdirAll(filepath.Join(home, ".config/gh"), 0o700); err != nil {
				t.Fatal(err)
			}
			var policy mountpolicy.Policy
			t.Setenv("SSH_AUTH_SOCK", sock)
			f := newFixture(t, func(d *server.Deps) {
				d.Home = home
				d.Rules = func() server.Rules { return server.Rules{Mounts: policy} }
			})
			try := func(spec *agboxv1.CreateSpec) error {
				spec.Image = "x"
				_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec, DryRun: true})
				return err
			}
			tool := &agboxv1.CreateSpec{BuiltinTools: []string{"git"}}
			if err := try(tool); err != nil {
				t.Errorf("the tool: %v", err)
			}
			err := try(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: sock, Target: "/agent"}}})
			if dir == "/tmp" && err != nil {
				t.Errorf("the same socket as a mount: %v", err)
			}
			if dir == "/run" {
				refusedFor(t, err, `mounts[0].source "`+sock+`" `, "lies in /run")
			}
			policy.Engine = []string{sock}
			refusedFor(t, try(tool), `builtin_tools[0] "`+sock+`" `, "the container engine's")
			policy = mountpolicy.Policy{Own: []string{filepath.Dir(sock)}, AllowSystem: true}
			refusedFor(t, try(tool), `builtin_tools[0] "`+sock+`" `, "agboxd's own")
		})
	}
}

// The directories of tools may be reached by links, as in a repository of dotfiles. What counts is where they lead.
func TestAToolBehindALinkIsJudgedByWhereItLeads(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, target := filepath.Join(root, "home"), filepath.Join(root, "real")
	for _, dir := range []string{home, filepath.Join(target, "uv")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{".cache", ".local"} { // the parents of ~/.cache/uv and ~/.local/share/uv
		if err := os.Symlink(target, filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(target, filepath.Join(target, "share")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		policy mountpolicy.Policy
		why    string
	}{
		"an accepted place":            {mountpolicy.Policy{}, ""},
		"agboxd's own":                 {mountpolicy.Policy{Own: []string{target}, AllowSystem: true}, "agboxd's own"},
		"the engine's data":            {mountpolicy.Policy{EngineData: []string{target}}, "the container engine's data directory"},
		"a place outside of the roots": {mountpolicy.Policy{Allow: []string{home}}, "lies outside of mounts.allow"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(d *server.Deps) {
				d.Home, d.Rules = home, func() server.Rules { return server.Rules{Mounts: c.policy} }
			})
			spec := &agboxv1.CreateSpec{Image: "x", BuiltinTools: []string{"uv"}}
			_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec, DryRun: true})
			if c.why == "" {
				f.must(err)
				return
			}
			refusedFor(t, err, `builtin_tools[0] "`+target+`/uv" `, c.why)
		})
	}
}

// Once it exists, a missing path of agboxd's own would be visible in a mount that was accepted before.
func TestAMountThatWouldContainAMissingPathOfAgboxdIsRefused(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(root, "config", "agents-sandbox")
	f := newFixture(t, func(d *server.Deps) {
		d.Rules = func() server.Rules { return server.Rules{Mounts: mountpolicy.Policy{Own: []string{own}}} }
	})
	for _, writable := range []bool{true, false} {
		try := func() error {
			spec := &agboxv1.CreateSpec{Image: "x", Mounts: []*agboxv1.MountSpec{{Source: root, Target: "/h", Writable: writable}}}
			_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec, DryRun: true})
			return err
		}
		refusedFor(t, try(), `mounts[0].source "`+root+`" contains `+own, "can't be covered")
		if err := os.MkdirAll(own, 0o700); err != nil {
			t.Fatal(err)
		}
		f.must(try())
		if err := os.RemoveAll(filepath.Dir(own)); err != nil {
			t.Fatal(err)
		}
	}
}

// Covers and pins of nested mounts: nothing is mounted at one target twice, and every directory above a cover is pinned that the sandbox sees.
func TestWhatHidesAgboxdInNestedMounts(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(root, "a/b/own")
	for _, dir := range []string{own, filepath.Join(root, "other")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f := newFixture(t, func(d *server.Deps) {
		d.Rules = func() server.Rules { return server.Rules{Mounts: mountpolicy.Policy{Own: []string{own}}} }
	})
	mount := func(source, target string) *agboxv1.MountSpec {
		return &agboxv1.MountSpec{Source: filepath.Join(root, source), Target: target, Writable: true}
	}
	readOnly := &agboxv1.MountSpec{Source: root, Target: "/h"}
	for name, c := range map[string]struct {
		mounts []*agboxv1.MountSpec
		want   string // covers, then pins
	}{
		"one":                             {[]*agboxv1.MountSpec{mount("", "/h")}, "/h/a/b/own | /h/a /h/a/b"},
		"read-only":                       {[]*agboxv1.MountSpec{readOnly}, "/h/a/b/own |"},
		"a part of it beside it":          {[]*agboxv1.MountSpec{mount("", "/h"), mount("a", "/a")}, "/a/b/own /h/a/b/own | /a/b /h/a /h/a/b"},
		"the same part at its place":      {[]*agboxv1.MountSpec{mount("", "/h"), mount("a", "/h/a")}, "/h/a/b/own | /h/a/b"},
		"another directory on the way":    {[]*agboxv1.MountSpec{mount("", "/h"), mount("other", "/h/a")}, " |"},
		"another directory further below": {[]*agboxv1.MountSpec{mount("other", "/h/a/b"), mount("", "/h")}, " | /h/a"},
	} {
		resp, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "x", Mounts: c.mounts}})
		f.must(err)
		sb, err := f.store.Sandbox(t.Context(), resp.GetSandbox().GetSandboxId())
		f.must(err)
		var covers, pins []string
		for _, one := range sb.Desired.GetConfinement().GetCovers() {
			covers = append(covers, one.GetTarget())
		}
		for _, one := range sb.Desired.GetConfinement().GetPins() {
			pins = append(pins, one.GetTarget())
			if one.GetSource() != root+"/"+strings.TrimPrefix(strings.TrimPrefix(one.GetTarget(), "/h/"), "/") {
				t.Errorf("%s: %v", name, one)
			}
		}
		if got := strings.TrimSuffix(strings.Join(covers, " ")+" | "+strings.Join(pins, " "), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// refusedFor asserts that err refuses the spec for a path of a field, and says why.
func refusedFor(t *testing.T, err error, path, why string) {
	t.Helper()
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want %s ... %s", err, path, why)
	}
}
