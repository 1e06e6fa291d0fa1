package passwd

import (
	"slices"
	"strings"
	"testing"
)

const (
	users = "root:x:0:0:root:/root:/bin/sh\n" +
		"broken:x:1\n" +
		"far:x:4294967295:0::/:/bin/sh\n" +
		"agbox:x:1000:1001:agbox:/home/agbox:/bin/bash\r\n" +
		"alice:x:7:8::/home/alice:/bin/sh"
	groups = "root:x:0:\nagbox:x:1001:\nwheel:x:10:alice,agbox\nbad:x:none:agbox\naudio:x:29:bob,agbox\n"
)

func TestLookup(t *testing.T) {
	tests := []struct {
		spec string
		want Identity
	}{
		{"agbox", Identity{UID: 1000, GID: 1001, Name: "agbox", Home: "/home/agbox", Groups: []uint32{10, 29}}},
		{"1000", Identity{UID: 1000, GID: 1001, Name: "agbox", Home: "/home/agbox", Groups: []uint32{10, 29}}},
		{"agbox:", Identity{UID: 1000, GID: 1001, Name: "agbox", Home: "/home/agbox", Groups: []uint32{10, 29}}},
		{"alice:wheel", Identity{UID: 7, GID: 10, Name: "alice", Home: "/home/alice"}},
		{"alice:55", Identity{UID: 7, GID: 55, Name: "alice", Home: "/home/alice"}},
		{"4711", Identity{UID: 4711, Home: "/"}},
		{"4711:12", Identity{UID: 4711, GID: 12, Home: "/"}},
	}
	for _, tt := range tests {
		got, err := Lookup([]byte(users), []byte(groups), tt.spec)
		if err != nil {
			t.Errorf("%q: %v", tt.spec, err)
		}
		if got.UID != tt.want.UID || got.GID != tt.want.GID || got.Name != tt.want.Name || got.Home != tt.want.Home || !slices.Equal(got.Groups, tt.want.Groups) {
			t.Errorf("%q: got %+v, want %+v", tt.spec, got, tt.want)
		}
	}
}

func TestOwnGroup(t *testing.T) {
	const passwd = "root:x:0:0::/root:/bin/sh\na:x:1:1::/:\nagain:x:1:1::/:\nb:x:2:50::/:\nc:x:3:50::/:\nd:x:4:4::/:\ne:x:5:60::/:\n"
	const group = "root:x:0:root\na:x:1:\nstaff:x:50:\nd:x:4:d,e\ne:x:60:e\n"
	for spec, want := range map[string]bool{
		"root": true, "a": true, "again": true, "1": true, "e": true,
		"b": false, "c": false, "d": false, "a:50": false, "a:1": false, "7": false, "7:7": false,
	} {
		if id, err := Lookup([]byte(passwd), []byte(group), spec); err != nil || id.OwnGroup != want {
			t.Errorf("%q: %+v, %v", spec, id, err)
		}
	}
}

func TestLookupRefuses(t *testing.T) {
	for spec, want := range map[string]string{
		"nobody":       `user "nobody" is not in`,
		"broken":       `user "broken" is not in`,
		"far":          `user "far" is not in`,
		"":             `user "" is not in`,
		"-1":           `user "-1" is not in`,
		"4294967295":   `user "4294967295" is not in`,
		"agbox:nobody": `group "nobody" is not in`,
		"agbox:bad":    `group "bad" is not in`,
	} {
		if id, err := Lookup([]byte(users), []byte(groups), spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v; want an error with %q", spec, id, err, want)
		}
	}
}

func TestLookupWithoutTables(t *testing.T) {
	if id, err := Lookup(nil, nil, "5:6"); err != nil || id.UID != 5 || id.GID != 6 {
		t.Errorf("got %+v, %v", id, err)
	}
}

func TestDefault(t *testing.T) {
	for _, tt := range []struct{ passwd, image, want string }{
		{users, "alice", "agbox"},
		{"root:x:0:0:root:/root:/bin/sh\n", "alice", "alice"},
		{"", "", "0"},
	} {
		if got := Default([]byte(tt.passwd), tt.image); got != tt.want {
			t.Errorf("Default(%q, %q) = %q, want %q", tt.passwd, tt.image, got, tt.want)
		}
	}
}
