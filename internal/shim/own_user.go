package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

// settleUser prepares the container for the user of commands: its rows in passwd and group if that is agbox and the image lacks it, its
// home, and the owner of the working directory and of new volumes. It writes on no other mount and follows no symbolic link. It may run at each start of the
// container and be cut off anywhere. Commands do not depend on it: see options.identify.
func (o options) settleUser() {
	all, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		say("find the mounts: %v", err)
		return
	}
	mounts := o.without(string(all))
	user, own := passwd.ParseOwn(o.hostUser)
	own = own && user.Is(o.user)
	made := false
	if own && os.Getpid() == 1 { // otherwise, in tests, this is the host's /etc
		if made, err = makeUser(user, mounts); err != nil {
			say("make the user %s: %v", user.Name, err)
		}
	}
	who, err := o.identify(o.user)
	if err != nil {
		say("find the user of commands: %v", err)
		return
	}
	if own && who.Home == user.Home() && os.Getpid() == 1 {
		if err := makeHome(who, mounts); err != nil {
			say("make the home of %s: %v", user.Name, err)
		}
	}
	if err := ownWorkspace(who, mounts, made); err != nil {
		say("set up the working directory: %v", err)
	}
	for _, target := range slices.Concat(o.own, o.given()) {
		if err := ownVolume(target, who, string(all)); err != nil {
			say("set up the volume at %s: %v", target, err)
		}
	}
}

// without removes the parts of the container's own file system from mountinfo.
func (o options) without(mountinfo string) string {
	var rest strings.Builder
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) < 5 || !slices.Contains(o.parts, unescape(f[4])) {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

// given returns the parts that belong to the user of commands if the image lacks them.
func (o options) given() []string {
	return slices.DeleteFunc([]string{workspace, "/tmp", "/var/tmp"}, func(dir string) bool { return !slices.Contains(o.parts, dir) })
}

// makeUser adds a user to passwd and group if passwd lacks it. passwd comes last: it shows that all is done.
func makeUser(user passwd.Own, mounts string) (made bool, err error) {
	users, groups, err := readTables("/etc")
	if err != nil || user.In(users) {
		return false, err
	}
	newUsers, newGroups := user.AddTo(users, groups)
	etc, err := makeDir("/etc", mounts)
	if err != nil {
		return true, err
	}
	defer unix.Close(etc)
	if string(newGroups) != string(groups) {
		if err := replaceTable(etc, "group", newGroups, mounts); err != nil {
			return true, err
		}
	}
	return true, replaceTable(etc, "passwd", newUsers, mounts)
}

// replaceTable replaces a file of /etc by one with the given content. After a crash of the host it has the old content or the new.
func replaceTable(etc int, name string, data []byte, mounts string) error {
	if mounted(mounts, "/etc/"+name, false) {
		return fmt.Errorf("/etc/%s %w", name, errOnMount)
	}
	return execjournal.Replace(etc, "."+name+".agbox", name, data, 0o644, true)
}

// makeHome creates the home of who if it is missing, and makes who the owner of it and of the directories between it and mounts inside
// it, where root owns them: the engine creates those for the mounts. The mounts themselves keep their owners.
func makeHome(who passwd.Identity, mounts string) error {
	if err := chownRoots(who.Home, who, mounts); err != nil {
		return err
	}
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		var errs []error
		for dir := filepath.Dir(unescape(f[4])); strings.HasPrefix(dir, who.Home+"/"); dir = filepath.Dir(dir) {
			errs = append(errs, chownRoots(dir, who, mounts))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// chownRoots gives a directory of root to who, and creates it first if it is missing. It leaves alone what is on a mount.
func chownRoots(dir string, who passwd.Identity, mounts string) error {
	fd, err := makeDir(dir, mounts)
	if errors.Is(err, errOnMount) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Uid != 0 || st.Gid != 0 {
		return err
	}
	return unix.Fchown(fd, int(who.UID), int(who.GID))
}

// errOnMount ends makeDir at a directory that is a mount: it is the host's.
var errOnMount = errors.New("is a mount")

// makeDir opens a directory of the container's own file system and creates it and its parents as needed, with mode 0755 and the parents' owners. It fails at a
// symbolic link, which might lead into a mount.
func makeDir(path, mounts string) (int, error) {
	dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	at := ""
	for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
		at += "/" + name
		if mounted(mounts, at, false) {
			unix.Close(dir)
			return -1, fmt.Errorf("%s %w", at, errOnMount)
		}
		made := unix.Mkdirat(dir, name, 0o755)
		if made != nil && !errors.Is(made, unix.EEXIST) {
			unix.Close(dir)
			return -1, fmt.Errorf("create %s: %w", at, made)
		}
		next, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil && made == nil {
			err = inherit(next, dir)
		}
		unix.Close(dir)
		if err != nil {
			return -1, fmt.Errorf("open %s: %w", at, err)
		}
		dir = next
	}
	return dir, nil
}

// inherit gives a new directory the owner of its parent: in the home of a user it is that user's.
func inherit(fd, parent int) error {
	var st unix.Stat_t
	if err := unix.Fstat(parent, &st); err != nil || int(st.Uid) == os.Geteuid() {
		return err
	}
	return unix.Fchown(fd, int(st.Uid), int(st.Gid))
}

// unescape decodes a path of mountinfo.
func unescape(path string) string {
	return strings.NewReplacer(`\134`, `\`, `\040`, " ", `\011`, "\t", `\012`, "\n").Replace(path)
}
