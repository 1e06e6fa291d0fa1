package dockerd

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// nobody runs the engines of StartRootless: newuidmap wants a user with a name.
const nobody = 65534

// StartRootless is Start for an engine that an unprivileged user runs in a user namespace, with Debian's packages rootlesskit, slirp4netns and
// uidmap. The range of user IDs is in files that replace /etc/subuid and /etc/subgid in the engine's own mount namespace, where the user may open
// /dev/net/tun, too. The engine's mounts are not visible outside.
func StartRootless(t testing.TB, args ...string) *Engine {
	t.Helper()
	e := prepare(t, "", args)
	home, run, ids, tun := filepath.Join(e.dir, "home"), filepath.Join(e.dir, "run"), e.subordinateIDs(), filepath.Join(e.dir, "tun")
	for _, dir := range []string{home, run} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{e.dir, home, run} {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(e.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(tun, unix.S_IFCHR, int(unix.Mkdev(10, 200))); err != nil { // Documentation/admin-guide/devices.txt
		t.Fatal(err)
	}
	if err := os.Chmod(tun, 0o666); err != nil {
		t.Fatal(err)
	}
	const script = `mount --make-rprivate / && mount --bind "$0" /etc/subuid && mount --bind "$0" /etc/subgid &&
		mount --bind "$1" /dev/net/tun && shift && exec "$@"`
	e.user = nobody
	e.wrapper = slices.Concat([]string{"unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script, ids, tun},
		e.asUser(), []string{"env", "HOME=" + home, "XDG_RUNTIME_DIR=" + run})
	e.program = "/usr/share/docker.io/contrib/dockerd-rootless.sh"
	e.Start()
	return e
}
