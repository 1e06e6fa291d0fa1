package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agbox/agbox/internal/host/passwd"
)

func TestIdentify(t *testing.T) {
	etc := t.TempDir()
	must(t, os.WriteFile(filepath.Join(etc, "passwd"), []byte(strings.Join([]string{
		"root:x:0:0:root:/root:/bin/sh", "# comment", "broken:x:abc:1::/:", "neg:x:-1:1::/:", "huge:x:4294967295:1::/:",
		"bob:x:1001:1002::/home/bob:/bin/sh", "1234:x:77:78::/odd:",
	}, "\n")), 0o644))
	must(t, os.WriteFile(filepath.Join(etc, "group"), []byte(
		"root:x:0:\nwheel:x:10:bob,eve\nbobs:x:1002:\ndisk:x:6:bobby\naudio:x:29:eve,bob\n"), 0o644))
	for _, c := range []struct {
		spec, fallback string
		want           passwd.Identity
		err            string
	}{
		{"", "", passwd.Identity{Home: "/root", Name: "root", OwnGroup: true}, ""},
		{"", "bob", passwd.Identity{UID: 1001, GID: 1002, Groups: []uint32{10, 29}, Name: "bob", Home: "/home/bob", OwnGroup: true}, ""},
		{"bob", "", passwd.Identity{UID: 1001, GID: 1002, Groups: []uint32{10, 29}, Name: "bob", Home: "/home/bob", OwnGroup: true}, ""},
		{"1001", "", passwd.Identity{UID: 1001, GID: 1002, Groups: []uint32{10, 29}, Name: "bob", Home: "/home/bob", OwnGroup: true}, ""},
		{"bob:disk", "", passwd.Identity{UID: 1001, GID: 6, Name: "bob", Home: "/home/bob"}, ""},
		{"bob:4711", "", passwd.Identity{UID: 1001, GID: 4711, Name: "bob", Home: "/home/bob"}, ""},
		{"4000:5000", "", passwd.Identity{UID: 4000, GID: 5000, Home: "/"}, ""},
		{"4000", "", passwd.Identity{UID: 4000, GID: 0, Home: "/"}, ""},
		{"1234", "", passwd.Identity{UID: 77, GID: 78, Name: "1234", Home: "/odd", OwnGroup: true}, ""},
		{"eve", "", passwd.Identity{}, `user "eve"`},
		{"neg", "", passwd.Identity{}, `user "neg"`},
		{"huge", "", passwd.Identity{}, `user "huge"`},
		{"4294967295", "", passwd.Identity{}, "user"},
		{"bob:nogroup", "", passwd.Identity{}, `group "nogroup"`},
	} {
		got, err := (options{defaultUser: c.fallback}).identifyIn(etc, c.spec)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v, want %q", c.spec, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q, fallback %q: %+v, %v; want %+v", c.spec, c.fallback, got, err, c.want)
		}
	}
}

func TestCommandsOfAnImageWithoutAgboxAreNotRoots(t *testing.T) {
	node := t.TempDir()
	must(t, os.WriteFile(filepath.Join(node, "passwd"), []byte("root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(node, "group"), []byte("root:x:0:\nnode:x:1000:\nwheel:x:10:agbox\n"), 0o644))
	has := t.TempDir()
	must(t, os.WriteFile(filepath.Join(has, "passwd"), []byte("agbox:x:7:8::/h:/bin/sh\n"), 0o644))
	for _, c := range []struct {
		etc, user string
		want      passwd.Identity
	}{
		{t.TempDir(), "", passwd.Identity{UID: 1000, GID: 1000, Name: "agbox", Home: "/home/agbox", OwnGroup: true}},
		{node, "", passwd.Identity{UID: 1000, GID: 1000, Name: "agbox", Home: "/home/agbox", OwnGroup: true, Groups: []uint32{10}}},
		{node, "agbox:wheel", passwd.Identity{UID: 1000, GID: 10, Name: "agbox", Home: "/home/agbox"}},
		{node, "node", passwd.Identity{UID: 1000, GID: 1000, Name: "node", Home: "/home/node", OwnGroup: true}},
		{node, "1000", passwd.Identity{UID: 1000, GID: 1000, Name: "node", Home: "/home/node", OwnGroup: true}},
		{node, "0:0", passwd.Identity{Name: "root", Home: "/root"}},
		{has, "", passwd.Identity{UID: 7, GID: 8, Name: "agbox", Home: "/h", OwnGroup: true}},
	} {
		o := options{hostUser: "1000:1000", defaultUser: "root"}
		if got, err := o.identifyIn(c.etc, c.user); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v, %v; want %+v", c.user, got, err, c.want)
		}
	}
}

func TestIdentifyInHostileImages(t *testing.T) {
	empty := t.TempDir()
	if who, err := (options{}).identifyIn(empty, ""); err != nil || who.UID != 0 {
		t.Errorf("no passwd: %+v, %v", who, err)
	}
	withAgbox := t.TempDir()
	must(t, os.WriteFile(filepath.Join(withAgbox, "passwd"), []byte("agbox:x:1000:1000::/home/agbox:/bin/sh\n"), 0o644))
	if who, err := (options{defaultUser: "root"}).identifyIn(withAgbox, ""); err != nil || who.UID != 1000 {
		t.Errorf("agbox comes first: %+v, %v", who, err)
	}
	fifo := t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(fifo, "passwd"), 0o644))
	if _, err := (options{}).identifyIn(fifo, ""); err == nil {
		t.Error("a FIFO was read")
	}
	huge := t.TempDir()
	must(t, os.WriteFile(filepath.Join(huge, "passwd"), nil, 0o644))
	must(t, os.Truncate(filepath.Join(huge, "passwd"), 1<<40))
	if _, err := (options{}).identifyIn(huge, ""); err == nil {
		t.Error("a huge file was read")
	}
}

func TestEnvironment(t *testing.T) {
	bob := passwd.Identity{UID: 1001, Name: "bob", Home: "/home/bob"}
	for _, c := range []struct {
		name      string
		container []string
		who       passwd.Identity
		request   map[string]string
		want      []string
	}{
		{"the user's own", []string{"HOME=/root", "PATH=/p", "A=1=2"}, bob, nil,
			[]string{"A=1=2", "HOME=/home/bob", "LOGNAME=bob", "PATH=/p", "USER=bob"}},
		{"the image's HOME stays", []string{"HOME=/data", "PATH=/p"}, bob, nil,
			[]string{"HOME=/data", "LOGNAME=bob", "PATH=/p", "USER=bob"}},
		{"the request has the last word", []string{"HOME=/root", "PATH=/p"}, bob, map[string]string{"HOME": "/h", "USER": "x", "PATH": "/q"},
			[]string{"HOME=/h", "LOGNAME=bob", "PATH=/q", "USER=x"}},
		{"a user without a name", []string{"broken", "=x"}, passwd.Identity{UID: 5}, nil,
			[]string{"HOME=/", "PATH=" + defaultPath}},
	} {
		if got := environment(c.container, c.who, c.request); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestParseStat(t *testing.T) {
	for line, want := range map[string]process{
		"7 (sh) S 3 7 7 0":            {7, 3, 'S'},
		"7 (a) T 1) R) Z 4 7":         {7, 4, 'Z'},
		"7 (evil\n) S 1 (x) T 99 7 7": {7, 99, 'T'},
	} {
		if got, ok := parseStat(7, []byte(line)); !ok || got != want {
			t.Errorf("%q: %+v, %v", line, got, ok)
		}
	}
	for _, line := range []string{"", "7 sh", "7 (sh)", "7 (sh) S", "7 (sh) SS 1", "7 (sh) S x"} {
		if got, ok := parseStat(7, []byte(line)); ok {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

func TestAListThatLacksAParentIsNotWhole(t *testing.T) {
	if list := []process{{pid: 1}, {pid: 5, parent: 1}, {pid: 7, parent: 5}}; !whole(list) || whole(append(list, process{pid: 9, parent: 8})) {
		t.Error("a parent that is missing makes the difference")
	}
}

func TestBelow(t *testing.T) {
	list := []process{{1, 0, 'S'}, {2, 1, 'S'}, {3, 2, 'S'}, {4, 1, 'S'}, {5, 4, 'S'}, {6, 0, 'S'}}
	var pids []int
	for _, p := range below(list, 1, map[int]bool{4: true}) {
		pids = append(pids, p.pid)
	}
	if fmt.Sprint(pids) != "[2 3]" {
		t.Error(pids)
	}
}

func TestMounted(t *testing.T) {
	info := "1 0 8:1 / / rw - ext4 x rw\n2 1 8:1 /v /work\\040space/deep/er rw - ext4 x rw\n"
	for _, c := range []struct {
		dir        string
		at, within bool
	}{
		{"/", true, true},
		{"/work space/deep/er", true, true},
		{"/work space/deep", false, true},
		{"/work space/dee", false, false},
		{"/work space/deep/er/yet", false, false},
		{"/work", false, false},
		{"/v", false, false},
	} {
		if mounted(info, c.dir, false) != c.at || mounted(info, c.dir, true) != c.within {
			t.Errorf("%q: %v and %v", c.dir, !c.at, !c.within)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		nil, {"run"}, {"init", "x"}, {"init", "--"}, {"init", "--later=1"}, {"init", "--dir=rel"}, {"init", "--log-limit=-1"},
		{"init", "--log-limit=x"}, {"init", "--host-user=root"}, {"init", "--user"}, {"init", "x", "--", "true"},
		{"main"}, {"main", "--"}, {"main", "x", "--", "true"},
		{"exec"}, {"exec", "a", "b"}, {"exec", "--", "b"}, {"exec", "--user=x"},
	} {
		if code := Run(args, Places{}); code != 2 {
			t.Errorf("%q: %d", args, code)
		}
	}
}

func TestOptions(t *testing.T) {
	line := "init --host-user=3:4 --default-user=img --user=1:2 --own=/a --own=/b --cap=13 --cap=0 --new-privileges --part=/tmp --dir=/d --log-limit=7 -- prog --user=x -- y"
	o, ok := parse(strings.Fields(line))
	want := options{
		verb: "init", hostUser: "3:4", defaultUser: "img", user: "1:2", own: []string{"/a", "/b"}, parts: []string{"/tmp"}, caps: caps{13, 0}, gain: true, dir: "/d", logLimit: 7,
		command: []string{"prog", "--user=x", "--", "y"},
	}
	if !ok || !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, %v", o, ok)
	}
	want.verb, want.own, want.parts = "main", nil, nil // init has done that
	if again, ok := parse(o.mainArgs()[1:]); !ok || !reflect.DeepEqual(again, want) {
		t.Errorf("main: %+v, %v", again, ok)
	}
	sup, ok := parse(append(o.args("exec"), unassigned)[1:])
	if !ok || !reflect.DeepEqual(sup, options{verb: "exec", hostUser: "3:4", defaultUser: "img", user: "1:2", caps: caps{13, 0}, gain: true}) {
		t.Errorf("exec: %+v, %v", sup, ok)
	}
	if o, ok := parse([]string{"init", "--default-user="}); !ok || o.command != nil {
		t.Errorf("as the first release starts it: %+v, %v", o, ok)
	}
}
