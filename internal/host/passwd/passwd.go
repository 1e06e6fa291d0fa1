// Package passwd looks users up in the contents of an image's /etc/passwd and /etc/group, by the rules of the engine: for
// the daemon, which looks from outside, and for the shim, which looks from inside. It is pure; whoever reads the files bounds
// their size.
package passwd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Identity is whom a process of a container runs as, or who owns a file there.
type Identity struct {
	UID, GID uint32
	// Groups are the supplementary ones.
	Groups []uint32
	// OwnGroup is whether GID is the group of this user alone in passwd and group.
	OwnGroup bool
	// Name is empty for a number that passwd does not know.
	Name string
	// Home is "/" for a number that passwd does not know.
	Home string
}

// Lookup resolves "name", "uid", "name:group" or "uid:gid". As with the engine, a number need not be known, and has group 0
// then; an explicit group means no supplementary groups. Lines with too few fields or numbers out of range are skipped. The
// error names the user or group that is not there.
func Lookup(passwd, group []byte, spec string) (Identity, error) {
	userPart, groupPart, grouped := strings.Cut(spec, ":")
	id, err := findUser(passwd, userPart)
	if err != nil {
		return Identity{}, err
	}
	if grouped && groupPart != "" {
		id.GID, err = findGroup(group, groupPart)
		return id, err
	}
	id.Groups = memberships(group, id.Name)
	id.OwnGroup = id.Name != "" && !shared(passwd, group, id)
	return id, nil
}

// shared reports whether a user other than id is in its group.
func shared(passwd, group []byte, id Identity) bool {
	for u := range rows(passwd, 7) {
		uid, _ := parseID(u[2])
		if gid, ok := parseID(u[3]); ok && gid == id.GID && uid != id.UID {
			return true
		}
	}
	for g := range rows(group, 4) {
		others := func(name string) bool { return name != "" && name != id.Name }
		if gid, ok := parseID(g[2]); ok && gid == id.GID && slices.ContainsFunc(strings.Split(g[3], ","), others) {
			return true
		}
	}
	return false
}

// Default returns the user of a spec that names none, in a container of a release that did not make the user agbox: agbox where passwd has
// it, else the image's own user, else root.
func Default(passwd []byte, imageUser string) string {
	if (Own{}).In(passwd) {
		return DefaultName
	}
	if imageUser != "" {
		return imageUser
	}
	return "0"
}

func findUser(passwd []byte, want string) (Identity, error) {
	number, isNumber := parseID(want)
	for u := range rows(passwd, 7) {
		uid, okUser := parseID(u[2])
		gid, okGroup := parseID(u[3])
		if okUser && okGroup && (u[0] == want || isNumber && uid == number) {
			return Identity{UID: uid, GID: gid, Name: u[0], Home: u[5]}, nil
		}
	}
	if !isNumber {
		return Identity{}, fmt.Errorf("user %q is not in the image's /etc/passwd", want)
	}
	return Identity{UID: number, Home: "/"}, nil
}

func findGroup(group []byte, want string) (uint32, error) {
	for g := range rows(group, 4) {
		if gid, ok := parseID(g[2]); ok && g[0] == want {
			return gid, nil
		}
	}
	if gid, ok := parseID(want); ok {
		return gid, nil
	}
	return 0, fmt.Errorf("group %q is not in the image's /etc/group", want)
}

// maxGroups is the kernel's NGROUPS_MAX.
const maxGroups = 65536

func memberships(group []byte, name string) []uint32 {
	var list []uint32
	for g := range rows(group, 4) {
		gid, ok := parseID(g[2])
		if ok && name != "" && len(list) < maxGroups && slices.Contains(strings.Split(g[3], ","), name) {
			list = append(list, gid)
		}
	}
	return list
}

// parseID reads a user or group number below 2^31. The highest numbers mean "unchanged" in parts of the kernel.
func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return uint32(n), err == nil
}

// rows yields the fields of the lines that have at least so many.
func rows(table []byte, fields int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(string(table)) {
			row := strings.Split(strings.TrimRight(line, "\r\n"), ":")
			if len(row) >= fields && !yield(row) {
				return
			}
		}
	}
}

// Names returns the first name of each number in passwd, whose rows have 7 fields, or group, with 4.
func Names(table []byte, fields int) map[uint32]string {
	names := map[uint32]string{}
	for row := range rows(table, fields) {
		if id, ok := parseID(row[2]); ok && names[id] == "" {
			names[id] = row[0]
		}
	}
	return names
}
