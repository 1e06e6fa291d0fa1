package shim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

// etcLimit is the largest size in bytes of /etc/passwd and /etc/group. The image's author controls both files.
const etcLimit = 1 << 20

// identify resolves the user of a command in the passwd and group files of /etc. An empty user is agbox, which exists also where the image
// lacks it: nothing can make a command run as root, or fail, by removing that user. See also identifyIn for containers of older releases.
func (o options) identify(user string) (passwd.Identity, error) {
	return o.identifyIn("/etc", user)
}

// identifyIn is identify for the files of the directory etc; a missing file counts as empty. Without hostUser, as older releases created
// containers, an empty user means agbox if passwd has that user, else defaultUser, else root.
func (o options) identifyIn(etc, user string) (passwd.Identity, error) {
	users, groups, err := readTables(etc)
	if err != nil {
		return passwd.Identity{}, err
	}
	if own, ok := passwd.ParseOwn(o.hostUser); ok && own.Is(user) {
		users, groups = own.AddTo(users, groups)
		user = cmp.Or(user, own.Name)
	}
	if user == "" {
		user = passwd.Default(users, o.defaultUser)
	}
	return passwd.Lookup(users, groups, user)
}

func readTables(etc string) (users, groups []byte, err error) {
	if users, err = readTable(filepath.Join(etc, "passwd")); err == nil {
		groups, err = readTable(filepath.Join(etc, "group"))
	}
	return users, groups, err
}

func readTable(path string) ([]byte, error) {
	data, err := readRegular(path, etcLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// readRegular reads a regular file of at most limit bytes. It follows symlinks and does not block on a FIFO.
func readRegular(path string, limit int64) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > limit {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, limit)
	}
	return io.ReadAll(io.LimitReader(f, limit)) // files of /proc and /sys have size 0
}

// defaultPath is the engine's default PATH, for an image that sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns the container's variables, overridden by the user's own (HOME, USER, LOGNAME) and then by those of the request.
func environment(container []string, who passwd.Identity, request map[string]string) []string {
	env := make(map[string]string)
	for _, pair := range container {
		if k, v, ok := strings.Cut(pair, "="); ok && k != "" {
			env[k] = v
		}
	}
	if env["PATH"] == "" {
		env["PATH"] = defaultPath
	}
	if engineHome(env["HOME"]) {
		env["HOME"] = who.Home
	}
	if env["HOME"] == "" {
		env["HOME"] = "/"
	}
	if who.Name != "" {
		env["USER"], env["LOGNAME"] = who.Name, who.Name
	}
	maps.Copy(env, request)
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}

// withShim appends the directory of agbox-shim to PATH, so that programs of an agent find it after all other programs.
func withShim(env []string) []string {
	for i, pair := range env {
		if strings.HasPrefix(pair, "PATH=") {
			env[i] = pair + ":" + filepath.Dir(execjournal.ContainerShim)
		}
	}
	return env
}

// withTerm adds TERM, unless it is set, as docker exec does for a terminal.
func withTerm(env []string) []string {
	if slices.ContainsFunc(env, func(pair string) bool { return strings.HasPrefix(pair, "TERM=") }) {
		return env
	}
	return append(env, "TERM=xterm")
}

// engineHome reports whether HOME has a value that the engine sets for root, and thus is not the image's choice.
func engineHome(home string) bool { return home == "" || home == "/" || home == "/root" }

// ownWorkspace changes the owner of the working directory to the user that runs commands, if the directory looks like one that the engine
// created because the image lacks it: owned by root, mode 0755, on the container's own file system, and empty except for mount points. It
// changes no other directory: a world-writable /tmp stays root's. If made, no user of the image can be meant to own /workspace, so that
// directory need not be empty.
func ownWorkspace(who passwd.Identity, mounts string, made bool) error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	if who.UID == 0 || dir == "/" || mounted(mounts, dir, false) {
		return nil
	}
	f, err := os.Open(".")
	if err != nil {
		return fmt.Errorf("open the working directory: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("stat the working directory: %w", err)
	}
	if !engineMade(st) {
		return nil
	}
	fresh, err := onlyMounts(f, mounts, dir)
	if err != nil {
		return err
	}
	if fresh || made && dir == workspace {
		return f.Chown(int(who.UID), int(who.GID))
	}
	return nil
}

// engineMade reports whether a directory has the owner and the mode that the engine gives to one that it creates.
func engineMade(st os.FileInfo) bool {
	owner := st.Sys().(*syscall.Stat_t)
	return owner.Uid == 0 && owner.Gid == 0 && st.Mode() == os.ModeDir|0o755
}

// ownVolume changes the owner of a named volume to the user that runs commands, if the volume looks new: made by the engine, and empty
// except for mount points. The engine gives a volume the owner of the image's directory at the target, and root where the image has none.
func ownVolume(target string, who passwd.Identity, mounts string) error {
	if who.UID == 0 || !mounted(mounts, target, false) {
		return nil // behind a symbolic link the target is another path
	}
	f, err := os.Open(target)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !engineMade(st) {
		return err
	}
	fresh, err := onlyMounts(f, mounts, target)
	if err != nil || !fresh {
		return err
	}
	return f.Chown(int(who.UID), int(who.GID))
}

// workspace is the working directory of a spec that names none.
const workspace = "/workspace"

// onlyMounts reports whether all entries of the directory are mount points or parents of mount points.
func onlyMounts(f *os.File, mounts, dir string) (bool, error) {
	const most = 256 // more entries than this cannot all be mounts
	names, err := f.Readdirnames(most)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("list %s: %w", dir, err)
	}
	for _, name := range names {
		if !mounted(mounts, dir+"/"+name, true) {
			return false, nil
		}
	}
	return len(names) < most, nil
}

// mounted reports whether dir, or with within also any path below it, is a mount point: the fifth field of a line of mountinfo, where
// special characters are written as \ooo.
func mounted(mountinfo, dir string, within bool) bool {
	escaped := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(dir)
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) > 4 && (f[4] == escaped || within && strings.HasPrefix(f[4], escaped+"/")) {
			return true
		}
	}
	return false
}
