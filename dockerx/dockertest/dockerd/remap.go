package dockerd

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// RemappedRoot is the user of the host that is root in the containers of an engine of StartRemapped.
const RemappedRoot = 500000

// StartRemapped is Start for an engine with userns-remap. The user of UID 65534 owns the range, by files that replace /etc/subuid and /etc/subgid in
// the engine's own mount namespace; the engine's mounts are visible outside, as those of other engines.
func StartRemapped(t testing.TB, args ...string) *Engine {
	t.Helper()
	e := prepare(t, "", append(args, "--userns-remap", "nobody:nogroup"))
	if err := unix.Mount(e.dir, e.dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("mount %s on itself: %v", e.dir, err)
	}
	if err := unix.Mount("", e.dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatalf("share the mounts below %s: %v", e.dir, err)
	}
	if err := os.Chmod(e.dir, 0o711); err != nil { // root of the containers reaches their files
		t.Fatal(err)
	}
	ids := e.subordinateIDs()
	const script = `mount --make-private / && mount --bind "$0" /etc/subuid && mount --bind "$0" /etc/subgid && exec "$@"`
	e.wrapper = []string{"unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script, ids}
	e.Start()
	return e
}

// subordinateIDs makes a file that is /etc/subuid and /etc/subgid of an engine's mount namespace, and returns its path.
func (e *Engine) subordinateIDs() string {
	e.t.Helper()
	ids, from := filepath.Join(e.dir, "ids"), strconv.Itoa(RemappedRoot)
	if err := os.WriteFile(ids, []byte("nobody:"+from+":65536\nnogroup:"+from+":65536\n"), 0o644); err != nil {
		e.t.Fatal(err)
	}
	return ids
}
