package passwd

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// DefaultName is the name of Own unless a spec has another.
const DefaultName = "agbox"

// Own is the user of a spec that names none, and the numbers that it gets in an image that lacks it.
type Own struct {
	UID, GID uint32
	// Name: never empty after ParseOwn; empty is DefaultName.
	Name string
}

// String returns "uid:gid", or "uid:gid:name" for another name than DefaultName.
func (o Own) String() string {
	if o.named() == DefaultName {
		return fmt.Sprintf("%d:%d", o.UID, o.GID)
	}
	return fmt.Sprintf("%d:%d:%s", o.UID, o.GID, o.Name)
}

// ParseOwn parses the result of Own.String. It returns false for anything else.
func ParseOwn(s string) (Own, bool) {
	user, rest, _ := strings.Cut(s, ":")
	group, name, hasName := strings.Cut(rest, ":")
	uid, okUser := parseID(user)
	gid, okGroup := parseID(group)
	if !hasName {
		name = DefaultName
	}
	return Own{uid, gid, name}, okUser && okGroup && name != "" && !strings.ContainsAny(name, ":\n")
}

func (o Own) named() string { return cmp.Or(o.Name, DefaultName) }

// Home returns the home of the user unless the image's passwd has another.
func (o Own) Home() string { return "/home/" + o.named() }

// In reports whether a passwd file has the user.
func (o Own) In(passwd []byte) bool {
	for row := range rows(passwd, 7) {
		if row[0] == o.named() {
			return true
		}
	}
	return false
}

// Is reports whether a spec, as Lookup reads it, means the user: it has its name, or no user.
func (o Own) Is(spec string) bool {
	user, _, _ := strings.Cut(spec, ":")
	return spec == "" || user == o.named()
}

// AddTo returns passwd and group with the user, with a group of its own if its number has none of that name. It returns a table that
// lacks nothing unchanged. If another user or group has the same number, the new row precedes its row, so the number resolves to this
// user. The password field is "*": no password is valid, and PAM needs no row in shadow.
func (o Own) AddTo(passwd, group []byte) (newPasswd, newGroup []byte) {
	if o.In(passwd) {
		return passwd, group
	}
	name, gid := o.named(), strconv.Itoa(int(o.GID))
	passwd = insert(passwd, 7, strings.Join([]string{name, "*", strconv.Itoa(int(o.UID)), gid, name, o.Home(), "/bin/sh"}, ":"))
	for row := range rows(group, 4) {
		if row[0] == name {
			return passwd, group
		}
	}
	return passwd, insert(group, 4, strings.Join([]string{name, "*", gid, ""}, ":"))
}

// insert adds a row before the first one with the same number, its third field, or at the end.
func insert(table []byte, fields int, row string) []byte {
	id, _ := parseID(strings.Split(row, ":")[2])
	var out bytes.Buffer
	added := false
	for line := range strings.Lines(string(table)) {
		for f := range rows([]byte(line), fields) {
			if n, ok := parseID(f[2]); ok && n == id && !added {
				out.WriteString(row + "\n")
				added = true
			}
		}
		out.WriteString(line)
	}
	if added {
		return out.Bytes()
	}
	if n := len(table); n > 0 && table[n-1] != '\n' {
		out.WriteByte('\n')
	}
	out.WriteString(row + "\n")
	return out.Bytes()
}
