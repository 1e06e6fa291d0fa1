package validate_test

import (
	"path"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

func copied(source, target string, exclude ...string) *agboxv1.CopySpec {
	return &agboxv1.CopySpec{Source: source, Target: target, ExcludePatterns: exclude}
}

func TestFiles(t *testing.T) {
	for _, tc := range []struct {
		name   string
		mounts []*agboxv1.MountSpec
		copies []*agboxv1.CopySpec
		tools  []string
		want   string
	}{
		{
			"side by side and below each other",
			[]*agboxv1.MountSpec{mount("/a", "/srv/a"), mount("/b", "/srv/a/b"), mount("/c", "/home/agbox"), mount("/d", "/home/agbox/.claude/x")},
			[]*agboxv1.CopySpec{copied("/a", "/work"), copied("/b", "/work/b", "*.o", "!keep", "#x"), copied("/c", "/workspace")},
			[]string{"claude", "codex", "git", "uv", "npm", "apt", "opencode"}, "",
		},
		{
			"no source and no target", nil, []*agboxv1.CopySpec{{}}, nil,
			"copies[0].source: is required; copies[0].target: is required",
		},
		{
			"paths that are not", nil, []*agboxv1.CopySpec{copied("~/a", "b"), copied("/a/../b", "/a\n")}, nil,
			`copies[0].source: absolute; copies[0].target: absolute; copies[1].source: write "/b"; copies[1].target: control`,
		},
		{
			"patterns", nil, []*agboxv1.CopySpec{copied("/a", "/a", "", " ", "a\nb", "a\x00", strings.Repeat("x", 4097))}, nil,
			"copies[0].exclude_patterns[0]: empty; copies[0].exclude_patterns[1]: empty; copies[0].exclude_patterns[2]: one line; " +
				"copies[0].exclude_patterns[3]: NUL; copies[0].exclude_patterns[4]: limit is 4096",
		},
		{
			"too many patterns", nil, []*agboxv1.CopySpec{copied("/a", "/a", make([]string, 1025)...)}, nil,
			"copies[0].exclude_patterns: limit is 1024",
		},
		{"too many copies", nil, make([]*agboxv1.CopySpec, 129), nil, "copies: limit is 128"},
		{"too many mounts", make([]*agboxv1.MountSpec, 129), nil, nil, "mounts: limit is 128"},
		{"too many tools", nil, nil, make([]string, 65), "builtin_tools: limit is 64"},
		{
			"tools unknown and twice", nil, nil, []string{"git", "vim", "git"},
			"builtin_tools[1]: write claude, codex, git, uv, npm, apt, opencode; builtin_tools[2]: listed as builtin_tools[0] already",
		},
		{
			"one target for two", []*agboxv1.MountSpec{mount("/a", "/x"), mount("/b", "//x/")},
			[]*agboxv1.CopySpec{copied("/a", "/x"), copied("/a", "/y"), copied("/a", "/y/.")}, nil,
			"mounts[1].target: target of mounts[0] already; copies[0].target: target of mounts[0] already; copies[2].target: target of copies[1] already",
		},
		{
			"a mount where a tool goes", []*agboxv1.MountSpec{mount("/a", "/ssh-agent"), mount("/a", "/home/agbox/.claude.json")}, nil, []string{"git", "claude"},
			"builtin_tools[0]: is the target of mounts[0] already; builtin_tools[1]: is the target of mounts[1] already",
		},
		{
			"a copy into a mount", []*agboxv1.MountSpec{mount("/a", "/x")}, []*agboxv1.CopySpec{copied("/a", "/x/y/z"), copied("/a", "/xy")}, nil,
			`copies[0].target: lies below "/x", the target of mounts[0]`,
		},
		{
			"a copy around a mount", []*agboxv1.MountSpec{mount("/a", "/x/y")}, []*agboxv1.CopySpec{copied("/a", "/x")}, nil,
			`copies[0].target: holds "/x/y", the target of mounts[0]`,
		},
		{
			"copies and tools", nil,
			[]*agboxv1.CopySpec{copied("/a", "/home/agbox"), copied("/a", "/home/agbox/.npm/x"), copied("/a", "/home/agbox/.ssh/known_hosts")}, []string{"npm", "git"},
			`copies[0].target: the target of builtin_tools[0] (npm); copies[1].target: lies below "/home/agbox/.npm"; copies[2].target: is the target of builtin_tools[1] (git) already`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check(t, validate.Create(&agboxv1.CreateSpec{Image: "a", Mounts: tc.mounts, Copies: tc.copies, BuiltinTools: tc.tools}), tc.want)
		})
	}
}

func TestCopyTargets(t *testing.T) {
	for target, ok := range map[string]bool{
		"/": false, "/proc/x": false, "/sys/fs": false, "/dev/shm": false, "/device": true, "/etc": true, "/etc/hosts": false, "/etc/hosts.d": true,
		"/run": false, "/run/agbox": false, "/run/agbox/out/x": false, "/run/user": true, "/var/log": false, "/var/log/agents-sandbox": false,
		"/var/run/agbox/x": false, "/var/lib": true, "/workspace": true,
	} {
		spec := &agboxv1.CreateSpec{Image: "a", Copies: []*agboxv1.CopySpec{copied("/srv", target)}}
		if errs := validate.Create(spec); (len(errs) == 0) != ok {
			t.Errorf("target %s: got %v, want valid %v", target, errs, ok)
		}
	}
}

func TestToolsAreValidMounts(t *testing.T) {
	spec := &agboxv1.CreateSpec{Image: "a"}
	for _, tool := range validate.Tools() {
		for _, p := range tool.Paths {
			if p.Socket != (p.Host == "$SSH_AUTH_SOCK") || !p.Socket && (!strings.HasPrefix(p.Host, "~/") || path.Clean(p.Host) != p.Host) {
				t.Errorf("%s: host path %q", tool.Name, p.Host)
			}
			spec.Mounts = append(spec.Mounts, mount("/x", p.Target))
		}
	}
	check(t, validate.Create(spec), "")
	if validate.Tools()[0].Paths[0].Target = "/changed"; validate.Tools()[0].Paths[0].Target == "/changed" {
		t.Error("the table can be changed from outside")
	}
}

func TestNormalize(t *testing.T) {
	for text, want := range map[string]string{
		"/a//b/": "/a/b", "/": "/", "///": "/", "/./a/./": "/a", "/a/../b": "/a/../b", "/..": "/..", "a//b": "a//b", "": "", "/.../ x/": "/.../ x",
	} {
		spec := &agboxv1.CreateSpec{
			WorkingDir: text, Mounts: []*agboxv1.MountSpec{mount(text, text)}, Copies: []*agboxv1.CopySpec{copied(text, text)},
			Ports:            []*agboxv1.PortSpec{{}, {Protocol: "udp"}, {Protocol: "TCP"}},
			OptionalServices: []*agboxv1.ServiceSpec{{WorkingDir: text, Ports: []*agboxv1.PortSpec{{}}}},
		}
		got := validate.Normalize(spec)
		for _, p := range []string{
			got.WorkingDir, got.Mounts[0].Source, got.Mounts[0].Target, got.Copies[0].Source, got.Copies[0].Target, got.OptionalServices[0].WorkingDir,
		} {
			if p != want {
				t.Errorf("%q became %q, want %q", text, p, want)
			}
		}
		if got.Ports[0].Protocol != "tcp" || got.Ports[1].Protocol != "udp" || got.Ports[2].Protocol != "TCP" || got.OptionalServices[0].Ports[0].Protocol != "tcp" {
			t.Errorf("protocols became %v", got.Ports)
		}
		if spec.WorkingDir != text || spec.Ports[0].Protocol != "" {
			t.Error("the argument was changed")
		}
	}
	if validate.Normalize(nil) != nil {
		t.Error("nil became a spec")
	}
}
