//go:build docker

package dockerx

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/agbox/agbox/dockerx/dockertest/busybox"
)

// TestRewrittenImageHoldsNoSecret searches all that the engine knows of an image, which is more than InspectImage returns.
func TestRewrittenImageHoldsNoSecret(t *testing.T) {
	name := fmt.Sprintf("agbox-rewrite-%d", os.Getpid())
	busybox.Import(t, "", name+":base")
	busybox.Drop(t, "", name+":made")
	e, _ := newEngine(t, "")
	secret := "hunter2"
	id, err := e.CreateContainer(t.Context(), ContainerSpec{
		Name: name, Image: name + ":base", Entrypoint: []string{"/bin/sleep", secret}, Env: []string{"SECRET=" + secret}, Labels: map[string]string{"secret": secret},
	})
	if err != nil {
		t.Fatal(err)
	}
	part, err := e.CommitContainer(t.Context(), id, nil)
	if err := e.RemoveContainer(t.Context(), id); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	holds := func(ref string) bool {
		t.Helper()
		inspected, err := exec.CommandContext(t.Context(), "docker", "image", "inspect", ref).Output()
		if err != nil {
			t.Fatal(err)
		}
		history, err := exec.CommandContext(t.Context(), "docker", "history", "--no-trunc", ref).Output()
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(inspected, []byte(secret)) || bytes.Contains(history, []byte(secret))
	}
	_, err = e.RewriteImage(t.Context(), part, name+":base", name+":made", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !holds(part) || holds(name+":made") {
		t.Errorf("the secret is in the commit: %t, in the rewritten image: %t", holds(part), holds(name+":made"))
	}
	if err := e.RemoveImage(t.Context(), part); err != nil {
		t.Error(err)
	}
}
