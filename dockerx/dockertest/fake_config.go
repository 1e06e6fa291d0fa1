package dockertest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agbox/agbox/dockerx"
)

// defaultRuntime is used for a container whose spec names none.
const defaultRuntime = "runc"

// configure sets the fields that an inspection shows from the spec, or from the image where the spec sets none.
func (c *fakeContainer) configure(image dockerx.Image) {
	d, s := &c.detail, copySpec(c.spec)
	d.ImageRef, d.DiskBytes, d.GPUs, d.Healthcheck = s.Image, s.DiskBytes, s.GPUs, s.Healthcheck
	d.Entrypoint, d.Cmd = command(s, image)
	d.Env = mergeEnv(s.Env, image.Env)
	d.User, d.WorkingDir = cmp.Or(s.User, image.User), cmp.Or(s.WorkingDir, image.WorkingDir)
	d.Hostname, d.Runtime = cmp.Or(s.Hostname, d.ID[:12]), cmp.Or(s.Runtime, defaultRuntime)
}

// command applies Docker's rule: a set entrypoint drops the image's command.
func command(s dockerx.ContainerSpec, image dockerx.Image) (entrypoint, cmd []string) {
	if len(s.Entrypoint) > 0 {
		return s.Entrypoint, s.Cmd
	}
	if len(s.Cmd) == 0 {
		return image.Entrypoint, image.Cmd
	}
	return image.Entrypoint, s.Cmd
}

// mergeEnv returns own, followed by the variables of image whose keys are not in own.
func mergeEnv(own, image []string) []string {
	keys := map[string]bool{}
	for _, e := range own {
		key, _, _ := strings.Cut(e, "=")
		keys[key] = true
	}
	merged := slices.Clone(own)
	for _, e := range image {
		if key, _, _ := strings.Cut(e, "="); !keys[key] {
			merged = append(merged, e)
		}
	}
	return merged
}

func copyHealthcheck(h *dockerx.Healthcheck) *dockerx.Healthcheck {
	if h == nil {
		return nil
	}
	c := *h
	c.Test = slices.Clone(h.Test)
	return &c
}
