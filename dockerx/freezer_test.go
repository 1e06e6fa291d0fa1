package dockerx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

var frozenID = strings.Repeat("0123456789abcdef", 4)

// madeUpHost returns a host with one process, 7, whose /proc/7/cgroup has these lines, and these files below /sys/fs/cgroup.
func madeUpHost(t *testing.T, lines string, files map[string]string) hostFreezer {
	t.Helper()
	h := hostFreezer{proc: t.TempDir(), cgroup: t.TempDir()}
	write := func(path, content string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(h.proc, "7", "cgroup"), strings.ReplaceAll(lines, "ID", frozenID))
	for name, content := range files {
		write(filepath.Join(h.cgroup, strings.ReplaceAll(name, "ID", frozenID)), content)
	}
	return h
}

func TestThawOfTheContainersOwnCgroup(t *testing.T) {
	const v1 = "7:blkio:/docker/ID\n6:freezer:/docker/ID\n0::/docker/ID\n"
	for name, tc := range map[string]struct {
		lines        string
		self, frozen string // the file that reports the freeze, and its content
		state        string // the file that is written
		written      string // "": none
	}{
		"v1":                                  {v1, "freezer/docker/ID/freezer.self_freezing", "1\n", "freezer/docker/ID/freezer.state", "THAWED"},
		"v1, not frozen":                      {v1, "freezer/docker/ID/freezer.self_freezing", "0\n", "freezer/docker/ID/freezer.state", ""},
		"v1 beside v2":                        {v1, "unified/docker/ID/cgroup.freeze", "1\n", "unified/docker/ID/cgroup.freeze", "0"},
		"v2":                                  {"0::/docker/ID\n", "docker/ID/cgroup.freeze", "1\n", "docker/ID/cgroup.freeze", "0"},
		"v2, not frozen":                      {"0::/docker/ID\n", "docker/ID/cgroup.freeze", "0\n", "docker/ID/cgroup.freeze", ""},
		"v2 with systemd, in a nested cgroup": {"0::/system.slice/docker-ID.scope/init\n", "system.slice/docker-ID.scope/cgroup.freeze", "1\n", "system.slice/docker-ID.scope/cgroup.freeze", "0"},
		"another container":                   {"0::/docker/another\n", "docker/another/cgroup.freeze", "1\n", "docker/another/cgroup.freeze", ""},
		"no container":                        {"0::/\n", "cgroup.freeze", "1\n", "cgroup.freeze", ""},
		"a path with ..":                      {"0::/../docker/ID\n", "docker/ID/cgroup.freeze", "1\n", "docker/ID/cgroup.freeze", ""},
		"no file":                             {"0::/docker/ID\n", "docker/ID/other", "1\n", "docker/ID/other", ""},
		"nonsense":                            {"\nx\n:\n", "docker/ID/cgroup.freeze", "1\n", "docker/ID/cgroup.freeze", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := madeUpHost(t, tc.lines, map[string]string{tc.state: "untouched", tc.self: tc.frozen})
			before := tc.frozen
			if tc.self != tc.state {
				before = "untouched"
			}
			want := tc.written
			if want == "" {
				want = before
			}
			thawed, err := h.thaw(7, frozenID)
			if err != nil || thawed != (tc.written != "") {
				t.Errorf("thawed %t, %v", thawed, err)
			}
			got, err := os.ReadFile(filepath.Join(h.cgroup, strings.ReplaceAll(tc.state, "ID", frozenID)))
			if err != nil || string(got) != want {
				t.Errorf("%s contains %q, want %q", tc.state, got, want)
			}
		})
	}
}

func TestThawOfAnInvisibleContainer(t *testing.T) {
	h := madeUpHost(t, "0::/docker/ID\n", map[string]string{"docker/ID/cgroup.freeze": "1\n"})
	for name, one := range map[string]struct {
		pid int
		id  string
	}{"no such process": {8, frozenID}, "not running": {0, frozenID}, "no full ID": {7, frozenID[:12]}, "no ID": {7, ""}} {
		if thawed, err := h.thaw(one.pid, one.id); thawed || err != nil {
			t.Errorf("%s: %t, %v", name, thawed, err)
		}
	}
}

func TestThawWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write anything")
	}
	h := madeUpHost(t, "0::/docker/ID\n", map[string]string{"docker/ID/cgroup.freeze": "1\n"})
	if err := os.Chmod(filepath.Join(h.cgroup, "docker", frozenID, "cgroup.freeze"), 0o444); err != nil {
		t.Fatal(err)
	}
	thawed, err := h.thaw(7, frozenID)
	if thawed {
		t.Error("thawed")
	}
	wantClass(t, err, errdefs.ErrPermissionDenied)
}

func TestFreezeOfTheCgroupThatTheRuntimeFreezes(t *testing.T) {
	const v1 = "6:freezer:/docker/ID\n0::/docker/ID\n"
	freezer, unified := "freezer/docker/ID/freezer.state", "unified/docker/ID/cgroup.freeze"
	for name, tc := range map[string]struct {
		lines string
		files map[string]string
		want  map[string]string // their content afterwards
		did   bool
	}{
		"v1 alone, beside v2": {v1, map[string]string{"freezer/docker/ID/freezer.self_freezing": "0\n", freezer: "THAWED\n", unified: "0\n"},
			map[string]string{freezer: "FROZEN", unified: "0\n"}, true},
		"v2":                 {"0::/docker/ID\n", map[string]string{"docker/ID/cgroup.freeze": "0\n"}, map[string]string{"docker/ID/cgroup.freeze": "1"}, true},
		"v2, frozen already": {"0::/docker/ID\n", map[string]string{"docker/ID/cgroup.freeze": "1\n"}, map[string]string{"docker/ID/cgroup.freeze": "1\n"}, false},
		"another container":  {"0::/docker/another\n", map[string]string{"docker/another/cgroup.freeze": "0\n"}, map[string]string{"docker/another/cgroup.freeze": "0\n"}, false},
		"no file":            {"0::/docker/ID\n", nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := madeUpHost(t, tc.lines, tc.files)
			if did, err := h.freeze(7, frozenID); did != tc.did || err != nil {
				t.Errorf("%t, %v", did, err)
			}
			for file, want := range tc.want {
				if got, err := os.ReadFile(filepath.Join(h.cgroup, strings.ReplaceAll(file, "ID", frozenID))); err != nil || string(got) != want {
					t.Errorf("%s contains %q, %v", file, got, err)
				}
			}
		})
	}
}
