package dockerx

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/system"
)

func TestInfoReportsCapabilities(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/info") {
			answer(w, http.StatusNotFound, map[string]string{"message": "no such network"})
			return
		}
		answer(w, http.StatusOK, map[string]any{
			"ID": "id", "Driver": "overlay2", "DriverStatus": [][2]string{{"Backing Filesystem", "xfs"}, {"userxattr", "false"}},
			"Runtimes":     map[string]any{"runsc": map[string]any{}, "nvidia": map[string]any{}},
			"CpuCfsPeriod": true, "CpuCfsQuota": true, "MemoryLimit": true, "PidsLimit": true,
			"KernelVersion": "6.1", "OperatingSystem": "Debian", "CgroupVersion": "2", "CgroupDriver": "none",
			"SecurityOptions": []string{"name=apparmor", "name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"},
		})
	})
	s.become("1.12", "1.44")
	e, _ := newEngine(t, s.host)
	info, err := e.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(info.Runtimes, []string{"nvidia", "runsc"}) || info.StorageDriver != "overlay2 on xfs" || !info.DiskLimit ||
		!info.CPULimit || !info.MemoryLimit || info.SwapLimit || !info.PidsLimit || !info.GPUs || !info.StartInterval {
		t.Errorf("%+v", info)
	}
	if info.KernelVersion != "6.1" || info.System != "Debian" || info.CgroupVersion != "2" || !info.PrivateCgroups || info.SeccompProfile != "builtin" ||
		!info.Rootless || !info.UsersRemapped || info.Freezes || info.OtherUser != 0 {
		t.Errorf("%+v", info)
	}
}

func TestRemappedRoot(t *testing.T) {
	for _, tt := range []struct {
		option, dataRoot string
		uid, gid         int
	}{
		{"name=userns", "/var/lib/docker/100000.200000", 100000, 200000},
		{"name=userns", "/var/lib/docker", 0, 0},
		{"name=userns", "/var/lib/docker/0.5", 0, 0},
		{"name=userns", "/var/lib/docker/1.2.3", 0, 0},
		{"name=cgroupns", "/srv/100000.200000", 0, 0},
		{"name=rootless", "/home/u/100000.200000", 0, 0},
	} {
		info := infoOf(system.Info{SecurityOptions: []string{tt.option}, DockerRootDir: tt.dataRoot}, nil, engineLife{})
		if info.RootUID != tt.uid || info.RootGID != tt.gid {
			t.Errorf("%s in %s: %d:%d", tt.option, tt.dataRoot, info.RootUID, info.RootGID)
		}
	}
}

// heldListener is a socket that systemd holds for an engine: while the engine is ending, connections are made that it never serves.
type heldListener struct {
	net.Listener
	ending atomic.Bool
}

func (l *heldListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || !l.ending.Load() {
			return c, err
		}
		defer c.Close()
	}
}

// TestAnEngineThatIsEndingGivesNoInfo: it still answers on the connections that it has, and its containers end meanwhile.
func TestAnEngineThatIsEndingGivesNoInfo(t *testing.T) {
	s := &fakeServer{version: "1.41", oldest: "1.12", handle: func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/info") {
			answer(w, http.StatusOK, map[string]any{"ID": "id"})
			return
		}
		answer(w, http.StatusNotFound, map[string]string{"message": "no such object"})
	}}
	s.Server = httptest.NewUnstartedServer(s)
	s.host = s.listen(t, filepath.Join(t.TempDir(), "s"))
	socket := &heldListener{Listener: s.Listener}
	s.Listener = socket
	s.Start()
	t.Cleanup(s.Close)
	e, _ := newEngine(t, s.host)
	if _, err := e.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	socket.ending.Store(true)
	if _, err := e.InspectContainer(t.Context(), "gone"); !errdefs.IsNotFound(err) {
		t.Fatalf("an old connection: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if info, err := e.Info(ctx); err == nil {
		t.Errorf("%+v", info)
	}
}

func TestBoundsDisk(t *testing.T) {
	for _, tc := range []struct {
		driver, backing string
		want            bool
	}{
		{"overlay2", "xfs", true}, {"overlay2", "extfs", false}, {"overlay2", "", false}, {"btrfs", "", true}, {"zfs", "", true},
		{"devicemapper", "", true}, {"vfs", "xfs", false}, {"overlayfs", "xfs", false},
	} {
		if got := boundsDisk(tc.driver, tc.backing); got != tc.want {
			t.Errorf("%s on %s: %t", tc.driver, tc.backing, got)
		}
	}
}

func TestSeesGPUs(t *testing.T) {
	none, plain, tool := t.TempDir(), t.TempDir(), t.TempDir()
	for dir, mode := range map[string]os.FileMode{plain: 0o644, tool: 0o755} {
		if err := os.WriteFile(filepath.Join(dir, gpuHelpers[0]), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	local, remote := &Engine{host: endpoint{network: "unix"}}, &Engine{host: endpoint{network: "tcp"}}
	for name, tc := range map[string]struct {
		e        *Engine
		runtimes []string
		dirs     []string
		want     bool
	}{
		"neither runtime nor helper":    {local, []string{"runc"}, []string{none}, false},
		"a runtime":                     {remote, []string{"nvidia", "runc"}, nil, true},
		"a helper":                      {local, []string{"runc"}, []string{none, tool}, true},
		"a file that is not executable": {local, nil, []string{plain}, false},
		"a helper on our host only":     {remote, []string{"runc"}, []string{tool}, false},
	} {
		if got := tc.e.seesGPUs(tc.runtimes, tc.dirs); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestStartIntervalIsSentOrRefused(t *testing.T) {
	var asked []byte
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		asked, _ = io.ReadAll(r.Body)
		answer(w, http.StatusCreated, map[string]any{"Id": "x"})
	})
	e, _ := newEngine(t, s.host)
	spec := ContainerSpec{Name: "x", Image: "x", Healthcheck: &Healthcheck{Test: []string{"CMD", "true"}, StartInterval: time.Second}}
	_, err := e.CreateContainer(t.Context(), spec)
	wantClass(t, err, errdefs.ErrInvalidArgument)
	if asked != nil {
		t.Error("a create without its start interval was sent")
	}
	s.become("1.24", "1.44")
	e, _ = newEngine(t, s.host)
	if _, err := e.CreateContainer(t.Context(), spec); err != nil {
		t.Error(err)
	}
	if !strings.Contains(string(asked), `"StartInterval":1000000000`) {
		t.Errorf("sent %s", asked)
	}
}
