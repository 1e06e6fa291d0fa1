package passwd

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Own is the user of a spec that names none, OwnHome its home unless the image's passwd has another.
const (
	Own     = "agbox"
	OwnHome = "/home/agbox"
)

// IDs are the numbers that Own gets in an image that lacks it.
type IDs struct{ UID, GID uint32 }

// String returns "uid:gid".
func (i IDs) String() string { return fmt.Sprintf("%d:%d", i.UID, i.GID) }

// ParseIDs parses the result of IDs.String. It returns false for anything else.
func ParseIDs(s string) (IDs, bool) {
	user, group, _ := strings.Cut(s, ":")
	uid, okUser := parseID(user)
	gid, okGroup := parseID(group)
	return IDs{uid, gid}, okUser && okGroup
}

// HasOwn reports whether a passwd file has the user Own.
func HasOwn(passwd []byte) bool {
	for row := range rows(passwd, 7) {
		if row[0] == Own {
			return true
		}
	}
	return false
}

// IsOwn reports whether a spec, as Lookup reads it, means Own: it names Own, or no user.
func IsOwn(spec string) bool {
	user, _, _ := strings.Cut(spec, ":")
	return spec == "" || user == Own
}

// WithOwn returns passwd and group with the user Own, with a group of its own if its number has none of that name. It returns a table that
// lacks nothing unchanged. If another user or group has the same number, the new row precedes its row, so the number resolves to Own. The
// password field is "*": no password is valid, and PAM needs no row in shadow.
func WithOwn(passwd, group []byte, ids IDs) (newPasswd, newGroup []byte) {
	if HasOwn(passwd) {
		return passwd, group
	}
	gid := strconv.Itoa(int(ids.GID))
	passwd = insert(passwd, 7, strings.Join([]string{Own, "*", strconv.Itoa(int(ids.UID)), gid, Own, OwnHome, "/bin/sh"}, ":"))
	for row := range rows(group, 4) {
		if row[0] == Own {
			return passwd, group
		}
	}
	return passwd, insert(group, 4, strings.Join([]string{Own, "*", gid, ""}, ":"))
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
