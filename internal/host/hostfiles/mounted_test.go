package hostfiles

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
)

// The test's own process plays PID 1 of a container that has the host's root: so a target is a host path.
func TestCheckMounted(t *testing.T) {
	dir := t.TempDir()
	known := Mounted{dir, dir}
	for _, name := range []string{"real", "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link": "other", "inside": dir + "/real"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, row := range []struct {
		name   string
		mounts []Mounted
		want   func(error) bool
	}{
		{"no mounts", nil, nil},
		{"the same directory", []Mounted{{at("real"), at("real")}}, nil},
		{"a target that leads through a link of the image", []Mounted{{at("real"), at("inside")}}, nil},
		{"another directory", []Mounted{{at("real"), at("real")}, {at("real"), at("other")}}, errdefs.IsAborted},
		{"no target", []Mounted{{at("real"), at("gone")}}, errdefs.IsAborted},
		{"a source that has become a link", []Mounted{{at("link"), at("other")}}, errdefs.IsFailedPrecondition},
		{"a source that is gone", []Mounted{{at("gone"), at("other")}}, errdefs.IsFailedPrecondition},
	} {
		seen, err := CheckMounted(os.Getpid(), known, row.mounts)
		if !seen || (row.want == nil) != (err == nil) || err != nil && !row.want(err) {
			t.Errorf("%s: %t, %v", row.name, seen, err)
		}
	}
	// The daemon's own directory may be reached through a link, such as a home on another disk.
	if seen, err := CheckMounted(os.Getpid(), Mounted{at("inside"), at("real")}, nil); !seen || err != nil {
		t.Errorf("agboxd's own mount through a link: %t, %v", seen, err)
	}
	if seen, err := CheckMounted(os.Getpid(), Mounted{at("real"), at("other")}, []Mounted{{at("real"), at("other")}}); seen || err != nil {
		t.Errorf("invisible files: %t, %v", seen, err)
	}
}

func TestCheckMountedOfAnExitedProcess(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", cmd.Process.Pid)); err == nil {
		t.Skip("its PID is in use again")
	}
	if _, err := CheckMounted(cmd.Process.Pid, Mounted{"/", "/"}, nil); !errdefs.IsUnavailable(err) {
		t.Errorf("%v", err)
	}
}
