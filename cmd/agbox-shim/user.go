package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// etcLimit bounds /etc/passwd and /etc/group, which the image's author wrote.
const etcLimit = 1 << 20

// identity is whom a command runs as.
type identity struct {
	uid, gid uint32
	groups   []uint32 // supplementary
	name     string   // empty for a number that passwd does not know
	home     string
}

// identify resolves "name", "uid", "name:group" or "uid:gid" in the passwd and group files of the directory etc, as the
// engine does: a number need not be known and has group 0 then; an explicit group means no supplementary groups. An empty
// spec means agbox, if passwd has it, else fallback, else root.
func identify(etc, spec, fallback string) (identity, error) {
	users, err := readTable(filepath.Join(etc, "passwd"), 7)
	if err != nil {
		return identity{}, err
	}
	if spec == "" {
		spec = defaultSpec(users, fallback)
	}
	userPart, groupPart, grouped := strings.Cut(spec, ":")
	id, err := findUser(users, userPart)
	if err != nil {
		return identity{}, err
	}
	groups, err := readTable(filepath.Join(etc, "group"), 4)
	if err != nil {
		return identity{}, err
	}
	if grouped && groupPart != "" {
		id.gid, err = findGroup(groups, groupPart)
		return id, err
	}
	id.groups = memberships(groups, id.name)
	return id, nil
}

func defaultSpec(users [][]string, fallback string) string {
	for _, u := range users {
		if u[0] == "agbox" {
			return "agbox"
		}
	}
	if fallback != "" {
		return fallback
	}
	return "0"
}

func findUser(users [][]string, want string) (identity, error) {
	number, isNumber := parseID(want)
	for _, u := range users {
		uid, okUser := parseID(u[2])
		gid, okGroup := parseID(u[3])
		if okUser && okGroup && (u[0] == want || isNumber && uid == number) {
			return identity{uid: uid, gid: gid, name: u[0], home: u[5]}, nil
		}
	}
	if !isNumber {
		return identity{}, fmt.Errorf("user %q is not in the image's /etc/passwd", want)
	}
	return identity{uid: number, home: "/"}, nil
}

func findGroup(groups [][]string, want string) (uint32, error) {
	for _, g := range groups {
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

func memberships(groups [][]string, name string) []uint32 {
	var list []uint32
	for _, g := range groups {
		gid, ok := parseID(g[2])
		if !ok || name == "" || len(list) == maxGroups {
			continue
		}
		for member := range strings.SplitSeq(g[3], ",") {
			if member == name {
				list = append(list, gid)
				break
			}
		}
	}
	return list
}

// parseID reads a user or group number. The highest one means "unchanged" to the kernel and is refused.
func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return uint32(n), err == nil
}

// readTable reads a file of colon-separated lines with at least the given number of fields; others are skipped. A missing
// file is an empty one.
func readTable(path string, fields int) ([][]string, error) {
	data, err := readRegular(path, etcLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for line := range strings.Lines(string(data)) {
		if row := strings.Split(strings.TrimRight(line, "\r\n"), ":"); len(row) >= fields {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// readRegular reads a regular file of at most limit bytes; a symlink is followed, a FIFO is not waited for.
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
