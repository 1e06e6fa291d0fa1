//go:build docker

package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

var packagesImage = flag.String("packages", "", "the image in which packages are installed; empty: leave those tests out")

// packageSteps use a sandbox as an agent does. $sudo is how a command becomes root; /art has what testdata/packages/make.sh made.
var packageSteps = []struct {
	what, script string
	// hardened is part of the message that root gets in a hardened sandbox; "": the step works there.
	hardened string
}{
	{"apt installs a package", `$sudo apt-get install -y /art/agbox.deb
		test "$(stat -c %U:%a /usr/bin/agbox-deb-id /var/games/agbox-deb /var/lib/agbox-deb | tr '\n' ' ')" = 'root:4755 games:2750 agboxdeb:750 '
		/sbin/getcap /usr/bin/agbox-deb-cat | grep cap_net_bind_service=ep
		test "$(agbox-deb-id -u)" = 0`,
		"setgroups 65534 failed"},
	{"apt removes it with its user", `$sudo apt-get purge -y agbox-deb; if id agboxdeb; then exit 1; fi`, "Unable to locate package agbox-deb"},
	{"dpkg installs a package", `$sudo dpkg -i /art/agbox.deb`, "error setting ownership of '/var/games/agbox-deb.dpkg-new'"},
	{"dnf has a repository", `$sudo mkdir -p /etc/yum.repos.d
		printf '[agbox]\nname=agbox\nbaseurl=file:///art/repo\ngpgcheck=0\n' | $sudo tee /etc/yum.repos.d/agbox.repo`, ""},
	{"dnf installs a package whose files are root's", `$sudo dnf install -y agbox-shell`, ""},
	{"dnf installs a package and what it needs", `$sudo dnf install -y agbox-rpm
		test "$(stat -c %U:%a /usr/bin/agbox-rpm-id /var/games/agbox-rpm /var/lib/agbox-rpm | tr '\n' ' ')" = 'root:4755 games:2750 agboxrpm:750 '
		/sbin/getcap /usr/bin/agbox-rpm-cat | grep cap_net_bind_service=ep
		test "$(agbox-rpm-id -u)" = 0`,
		"Error in PREIN scriptlet"},
	{"dnf removes both packages", `$sudo dnf remove -y agbox-rpm agbox-shell
		if test -e /usr/bin/agbox-rpm-id || dnf list --installed agbox-shell; then exit 1; fi`, ""},
	{"their user is gone", `if id agboxrpm; then exit 1; fi`, "(agboxrpm)"}, // a user that was added by halves stays
	{"dnf installs a file", `$sudo dnf install -y /art/repo/agbox-rpm-*.rpm`, "Error in PREIN scriptlet"},
	{"pip installs a wheel for a user", `pip install --user --no-index --break-system-packages /art/agboxpip-1-py3-none-any.whl
		test "$(~/.local/bin/agboxpip)" = 'installed by pip'
		pip uninstall -y --break-system-packages agboxpip`, ""},
	{"pip builds and installs an sdist for all", `$sudo pip install --no-index --no-build-isolation --break-system-packages /art/agboxpip-1.tar.gz
		test "$(agboxpip)" = 'installed by pip'`, ""},
	{"adduser makes a user", `$sudo adduser --disabled-password --gecos '' newbie; echo newbie:secret | $sudo chpasswd`,
		"failure while writing changes to /etc/gshadow"},
	{"su becomes a user", `test "$($sudo su - newbie -c 'id -un; pwd' | tr '\n' ' ')" = 'newbie /home/newbie '`, "user newbie does not exist"},
	{"su becomes a user by password", `echo secret | su newbie -c 'test "$(id -un)" = newbie'`, "user newbie does not exist"},
	{"su becomes a user that the image has", `$sudo su agbox -c 'test "$(id -un)" = agbox'`, "su: cannot set groups: Operation not permitted"},
	{"sudo becomes root and others", `test "$(sudo -n id -u)" = 0; test "$(sudo -n -u nobody id -un)" = nobody`, "Operation not permitted"},
}

// hardenedUserSteps are tried by user 1000 of a hardened sandbox.
var hardenedUserSteps = map[string]string{
	"sudo -n id -u":                              `The "no new privileges" flag is set`,
	"apt-get install -y /art/agbox.deb":          "are you root?",
	"dnf install -y /art/repo/agbox-shell-*.rpm": "superuser privileges",
	"adduser newbie":                             "Only root may add a user",
	"su root -c id </dev/null":                   "Authentication failure",
	"pip install --user --no-index --break-system-packages /art/agboxpip-1-py3-none-any.whl; ~/.local/bin/agboxpip": "",
}

// docs/sandbox.md says what works in which profile.
func TestPackageManagersInEachProfile(t *testing.T) {
	if *packagesImage == "" {
		t.Skip("installs Debian in an image first, which takes minutes: make test-packages does it and gives its name")
	}
	t.Parallel()
	d := newDaemon(t, "", "")
	art := filepath.Join(d.home, "art")
	if err := os.Mkdir(art, 0o755); err != nil {
		t.Fatal(err)
	}
	box := func(profile, user string) string {
		id := d.create(withProfile(profile, &agboxv1.CreateSpec{
			Image: *packagesImage, User: user, Mounts: []*agboxv1.MountSpec{{Source: art, Target: "/art", Writable: user == "0" && profile == "standard"}},
			Envs: map[string]string{"sudo": map[string]string{"agbox": "sudo -n"}[user], "DEBIAN_FRONTEND": "noninteractive"},
		}))
		d.await(id, ready)
		return id
	}
	try := func(id, who, what, script, wantFailure string) {
		t.Helper()
		e := d.exec(id, "bash", "-euc", script)
		st := d.ended(e.GetExecId())
		said := d.read(e.GetStdoutLogPath()) + d.read(e.GetStderrLogPath())
		if wantFailure == "" && st.GetState() != finished {
			t.Errorf("%s: %s: %s %s\n%s", who, what, st.GetState(), st.GetError(), said)
		}
		if wantFailure != "" && (st.GetState() == finished || !strings.Contains(said, wantFailure)) {
			t.Errorf("%s: %s: %s, want %q\n%s", who, what, st.GetState(), wantFailure, said)
		}
	}
	maker := box("standard", "0")
	try(maker, "root", "make packages", string(must(os.ReadFile("testdata/packages/make.sh"))(t)), "")
	d.remove(maker)

	agent, root, user := box("standard", "agbox"), box("hardened", "0"), box("hardened", "agbox")
	for _, s := range packageSteps {
		try(agent, "standard, user 1000", s.what, s.script, "")
		try(root, "hardened, root", s.what, s.script, s.hardened)
	}
	for script, failure := range hardenedUserSteps {
		try(user, "hardened, user 1000", script, script, failure)
	}
}
