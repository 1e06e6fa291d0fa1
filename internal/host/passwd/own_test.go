package passwd

import "testing"

func TestOwnIsAdded(t *testing.T) {
	const (
		root  = "root:x:0:0:root:/root:/bin/sh\n"
		node  = "node:x:1000:1000::/home/node:/bin/bash\n"
		own   = "agbox:*:1000:1000:agbox:/home/agbox:/bin/sh\n"
		group = "agbox:*:1000:\n"
	)
	for _, c := range []struct{ name, passwd, group, wantPasswd, wantGroup string }{
		{"no tables", "", "", own, group},
		{"the last line has no end", "root:x:0:0:root:/root:/bin/sh", "root:x:0:", root + own, "root:x:0:\n" + group},
		{"another user and group have the numbers", root + node, "root:x:0:\nnode:x:1000:\n", root + own + node, "root:x:0:\n" + group + "node:x:1000:\n"},
		{"the group exists", root, "agbox:x:5:\n", root + own, "agbox:x:5:\n"},
		{"the user exists with another number", "agbox:x:7:8::/h:/bin/sh\n", "", "agbox:x:7:8::/h:/bin/sh\n", ""},
		{"broken rows stay", "agbox:x\n" + root, "x\n", "agbox:x\n" + root + own, "x\n" + group},
	} {
		p, g := Own{UID: 1000, GID: 1000}.AddTo([]byte(c.passwd), []byte(c.group))
		if string(p) != c.wantPasswd || string(g) != c.wantGroup {
			t.Errorf("%s:\n%s\n%s", c.name, p, g)
		}
		again, againGroup := Own{UID: 1000, GID: 1000}.AddTo(p, g)
		if string(again) != string(p) || string(againGroup) != string(g) {
			t.Errorf("%s: a second call changed the tables:\n%s\n%s", c.name, again, againGroup)
		}
	}
}

func TestParseOwn(t *testing.T) {
	for text, want := range map[string]Own{"1000:1001": {1000, 1001, "agbox"}, "1000:1001:user": {1000, 1001, "user"}} {
		if own, ok := ParseOwn(text); !ok || own != want || own.String() != text {
			t.Errorf("%s: %v, %v", text, own, ok)
		}
	}
	if text := (Own{UID: 1, GID: 2}).String(); text != "1:2" {
		t.Error(text)
	}
	for _, s := range []string{"", "1", "1:", ":1", "1:2:", "1:2:a:b", "-1:2", "4294967295:0", "a:b"} {
		if own, ok := ParseOwn(s); ok {
			t.Errorf("%q: %v", s, own)
		}
	}
}

func TestIsOwn(t *testing.T) {
	for spec, want := range map[string]bool{"": true, "agbox": true, "agbox:wheel": true, "root": false, "1000": false, "agboxer": false} {
		if (Own{}).Is(spec) != want {
			t.Errorf("%q: %v", spec, !want)
		}
	}
	if user := (Own{Name: "user"}); !user.Is("user:wheel") || user.Is("agbox") || user.Home() != "/home/user" {
		t.Error("another name")
	}
}
