package validate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

func mount(source, target string) *agboxv1.MountSpec {
	return &agboxv1.MountSpec{Source: source, Target: target}
}

func TestCreate(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, tc := range []struct {
		name   string
		change func(*agboxv1.CreateSpec)
		want   string // "field: part of the message; ..." or empty
	}{
		{"a full valid spec", func(s *agboxv1.CreateSpec) {
			s.Mounts = []*agboxv1.MountSpec{mount("/srv/a", "/work/a"), mount("/srv/a", "/work/a/b")}
			s.Labels = map[string]string{"team/x": "a b", "k": ""}
			s.Envs = map[string]string{"A_b.c": "=", "_": "\n"}
			s.IdleTtl = durationpb.New(0)
		}, ""},
		{"no image", func(s *agboxv1.CreateSpec) { s.Image = "" }, "image: create_spec.image is required"},
		{"an image ID", func(s *agboxv1.CreateSpec) { s.Image = "sha256:" + strings.Repeat("a", 64) }, ""},
		{"a registry with port, tag and digest", func(s *agboxv1.CreateSpec) {
			s.Image = "localhost:5000/a/b:v1@sha256:" + strings.Repeat("a", 64)
		}, ""},
		{"an upper-case image", func(s *agboxv1.CreateSpec) { s.Image = "Foo" }, "image: must be lowercase"},
		{"an image with a space", func(s *agboxv1.CreateSpec) { s.Image = "a b" }, "image: is not an image reference"},
		{"relative source, unclean target", func(s *agboxv1.CreateSpec) {
			s.Mounts = []*agboxv1.MountSpec{mount("a", "/b"), mount("/a", "/b/../c"), mount("~/a", "/d")}
		}, "mounts[0].source: absolute; mounts[1].target: write \"/c\"; mounts[2].source: absolute"},
		{"a target twice", func(s *agboxv1.CreateSpec) {
			s.Mounts = []*agboxv1.MountSpec{mount("/a", "/b"), mount("/c", "/b")}
		}, "mounts[1].target: target of mounts[0] already"},
		{"no source and no target", func(s *agboxv1.CreateSpec) { s.Mounts = []*agboxv1.MountSpec{{}} },
			"mounts[0].source: is required; mounts[0].target: is required"},
		{"label keys and values", func(s *agboxv1.CreateSpec) {
			s.Labels = map[string]string{"": "x", "-a b=\"ä\"": "x", strings.Repeat("ä", 1024): "x", "b": long, "c": "x\ny", "d\ne": "x", "f\u009b": "x", strings.Repeat("g", 1025): "x"}
		}, "labels[\"\"]: bad key; labels[b]: 5000 bytes; labels[c]: control; labels[\"d\\ne\"]: bad key; labels[\"f\\u009b\"]: bad key; labels[" + strings.Repeat("g", 64) + "...]: bad key"},
		{"many labels of a size", func(s *agboxv1.CreateSpec) {
			s.Labels = map[string]string{}
			for i := range 17 {
				s.Labels[fmt.Sprint("k", i)] = strings.Repeat("v", 4000)
			}
		}, "labels: 68041 bytes together"},
		{"env names and values", func(s *agboxv1.CreateSpec) {
			s.Envs = map[string]string{"1A": "secret", "A=B": "secret", "N": "secret\x00", "L": strings.Repeat("s", 128<<10)}
		}, "envs[1A]: bad name; envs[A=B]: bad name; envs[L]: limit; envs[N]: NUL"},
		{"a negative idle_ttl", func(s *agboxv1.CreateSpec) { s.IdleTtl = durationpb.New(-time.Second) }, "idle_ttl: positive"},
		{"an idle_ttl out of range", func(s *agboxv1.CreateSpec) { s.IdleTtl = &durationpb.Duration{Seconds: 1 << 60} }, "idle_ttl: positive"},
		{"too large", func(s *agboxv1.CreateSpec) { s.Envs = map[string]string{"A": strings.Repeat("x", 1<<20)} }, "create_spec: limit"},
		{"a field of a newer client", func(s *agboxv1.CreateSpec) {
			s.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
		}, "create_spec: field number 999"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := &agboxv1.CreateSpec{Image: "agbox-base:dev"}
			tc.change(spec)
			check(t, validate.Create(spec), tc.want)
		})
	}
}

func TestMountTargets(t *testing.T) {
	for target, ok := range map[string]bool{
		"/": false, "/proc": false, "/proc/self": false, "/sys": false, "/sys/fs/cgroup": true, "/dev": false, "/dev/shm": true,
		"/run": false, "/run/agbox": false, "/run/agbox/ctl": false, "/run/agboxer": true, "/run/user": true, "/var": false,
		"/var/log": false, "/var/log/agents-sandbox/x": false, "/var/log/nginx": true, "/var/run/agbox": false, "/processes": true,
	} {
		spec := &agboxv1.CreateSpec{Image: "a", Mounts: []*agboxv1.MountSpec{mount("/srv", target)}}
		if errs := validate.Create(spec); (len(errs) == 0) != ok {
			t.Errorf("target %s: got %v, want valid %v", target, errs, ok)
		}
	}
}

func TestExec(t *testing.T) {
	for _, tc := range []struct {
		name string
		req  *agboxv1.CreateExecRequest
		want string
	}{
		{"valid", &agboxv1.CreateExecRequest{SandboxId: "a", Command: []string{"true", ""}, Cwd: "/", ExecId: "abcd"}, ""},
		{"nothing", &agboxv1.CreateExecRequest{}, "sandbox_id: is required; command: command must not be empty"},
		{"an empty program", &agboxv1.CreateExecRequest{SandboxId: "a", Command: []string{""}}, "command[0]: must name a program"},
		{"a NUL", &agboxv1.CreateExecRequest{SandboxId: "a", Command: []string{"a", "\x00"}}, "command[1]: NUL"},
		{"a relative cwd", &agboxv1.CreateExecRequest{SandboxId: "a", Command: []string{"a"}, Cwd: "b"}, "cwd: absolute"},
		{"a bad ID", &agboxv1.CreateExecRequest{SandboxId: "a", Command: []string{"a"}, ExecId: "-"}, "exec_id: must be 4 to 200"},
		{"bad env", &agboxv1.CreateExecRequest{SandboxId: "a", Command: []string{"a"}, EnvOverrides: map[string]string{"a b": ""}}, "env_overrides[a b]: bad name"},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, validate.Exec(tc.req), tc.want) })
	}
}

func TestIDsAndNames(t *testing.T) {
	for id, ok := range map[string]bool{
		"abc": false, "abcd": true, "A_-9": true, "-abc": false, "abc_": false, "a/bc": false, "": false, "abcd\n": false,
		strings.Repeat("a", 200): true, strings.Repeat("a", 201): false, "äbcd": false,
	} {
		if errs := validate.SandboxID(id); (len(errs) == 0) != ok {
			t.Errorf("sandbox ID %q: %v", id, errs)
		}
	}
	for name, ok := range map[string]bool{
		"a": true, "web-1": true, "": false, "Web": false, "-a": false, "a-": false, "a_b": false, "a.b": false, "a\n": false,
		strings.Repeat("a", 63): true, strings.Repeat("a", 64): false,
	} {
		if errs := validate.Name(name); (len(errs) == 0) != ok {
			t.Errorf("name %q: %v", name, errs)
		}
	}
	check(t, validate.LabelSelector(nil), "label_selector: label_selector must not be empty")
}

// check compares errs with "field: part; field: part" and holds every text to being a sentence without secrets.
func check(t *testing.T, errs validate.Errors, want string) {
	t.Helper()
	var parts []string
	if want != "" {
		parts = strings.Split(want, "; ")
	}
	if len(errs) != len(parts) {
		t.Fatalf("got %q, want %q", errs, want)
	}
	for i, part := range parts {
		field, text, _ := strings.Cut(part, ": ")
		if errs[i].Field != field || !strings.Contains(errs[i].Message, text) {
			t.Errorf("got %s: %q, want %q", errs[i].Field, errs[i].Message, part)
		}
		if !strings.Contains(errs[i].Message, " ") || strings.Contains(fmt.Sprint(errs), "secret") {
			t.Errorf("bad text %q", errs[i].Message)
		}
	}
	if (errs.Err() == nil) != (want == "") {
		t.Errorf("Err() = %v", errs.Err())
	}
}
