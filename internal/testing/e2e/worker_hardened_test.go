//go:build docker

package e2e

import (
	"bytes"
	"io"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// In a hardened sandbox the workers have no capability either: each acts as the user that was asked for, root included, and none reads or
// replaces the private files of another.
func TestFilesOfAHardenedSandbox(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(withProfile("hardened", &agboxv1.CreateSpec{Image: baseImage}))
	d.await(id, ready)
	c := d.client()
	private := uint32(0o600)
	write := func(user, path, text string) (*agboxv1.FileEntry, error) {
		return c.WriteFile(d.ctx(), &agboxv1.WriteFileStart{SandboxId: id, User: user, Path: path, Mode: &private}, strings.NewReader(text))
	}
	read := func(user, path string) (string, error) {
		f, err := c.OpenFile(d.ctx(), &agboxv1.ReadFileRequest{SandboxId: id, User: user, Path: path})
		if err != nil {
			return "", err
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		return string(data), err
	}
	users := map[string]uint32{"": must(write("", "/tmp/of-the-user", "the user"))(t).GetUid(), "root": 0, "1234:1234": 1234}
	if users[""] == 0 {
		t.Error("commands run as root")
	}
	for user, uid := range users {
		path := "/tmp/of-" + user
		if e, err := write(user, path, user); err != nil || e.GetUid() != uid || e.GetMode() != private {
			t.Errorf("%q writes: %v, %v", user, e, err)
		}
		for other := range users {
			if other == user {
				continue
			}
			if text, err := read(other, path); client.Reason(err) != client.ReasonFilePermission {
				t.Errorf("%q reads the file of %q: %q, %v", other, user, text, err)
			}
			if _, err := write(other, path, "x"); client.Reason(err) != client.ReasonFilePermission {
				t.Errorf("%q replaces the file of %q: %v", other, user, err)
			}
		}
		if text, err := read(user, path); text != user || err != nil {
			t.Errorf("%q reads its own file: %q, %v", user, text, err)
		}
	}
	// No worker keeps owners: that takes a capability.
	var archive bytes.Buffer
	must(0, c.ReadArchive(d.ctx(), &agboxv1.ReadArchiveRequest{SandboxId: id, Path: "/tmp/of-"}, &archive, nil))(t)
	_, err := c.WriteArchive(d.ctx(), &agboxv1.WriteArchiveStart{SandboxId: id, User: "root", Path: "/root/kept", MakeParents: true, KeepOwners: true}, &archive)
	if client.Reason(err) != client.ReasonFilePermission {
		t.Errorf("root keeps owners: %v", err)
	}
	if got := d.sh(id, `for p in /proc/[0-9]*; do case $(tr '\0' ' ' <$p/cmdline) in agbox-shim\ serve*) grep -E 'CapEff|NoNewPrivs' $p/status; esac; done | sort -u`); got != "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n" {
		t.Errorf("the workers have %q", got)
	}
}
