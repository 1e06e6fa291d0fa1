package conformance

import (
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// starts has the rows of what READY means.
func starts(t *testing.T, c *client) {
	c.sub(t, "a main process that can't be executed fails the create", func(c *client) {
		id := c.create(func(s *spec) { s.Command, s.RestartPolicy = []string{"no-such-program"}, "always" })
		c.failsWith(id, "SANDBOX_CREATE_FAILED", `the main process could not start: command "no-such-program" was not found`)
		c.rows(c.history(id), "ACCEPTED PENDING", "PREPARING PENDING phase=materialize", "FAILED FAILED error_code=SANDBOX_CREATE_FAILED")
	})
	c.sub(t, "a user that the image lacks fails the create", func(c *client) {
		id := c.create(func(s *spec) { s.User = "nobody-here" })
		c.failsWith(id, "SANDBOX_CREATE_FAILED", `user "nobody-here" is not in the image's /etc/passwd`)
		c.rows(c.history(id), "ACCEPTED PENDING", "PREPARING PENDING phase=materialize", "FAILED FAILED error_code=SANDBOX_CREATE_FAILED")
	})
	c.sub(t, "a hardened sandbox runs no ENTRYPOINT", func(c *client) {
		_, err := c.tryCreate(&agboxv1.CreateSandboxRequest{CreateSpec: &spec{
			Image: c.target.Image, Entrypoint: "run", Security: &agboxv1.SecuritySpec{Profile: "hardened"},
		}})
		c.refused(err, refusal{
			codes.InvalidArgument, "INVALID_SPEC",
			`entrypoint: the security profile "hardened" does not run an ENTRYPOINT, which would be root: write "skip", or take the profile "standard"`,
			map[string]string{"field": "entrypoint"},
		})
	})
	c.sub(t, "a main process that was executed was READY, however quickly it ended", func(c *client) {
		id := c.create(func(s *spec) { s.Command = []string{"sh", "-c", "exit 3"} })
		c.failsWith(id, "CONTAINER_DIED", "exited with code 3")
		c.rows(c.history(id), "ACCEPTED PENDING", "PREPARING PENDING phase=materialize", "READY READY", "FAILED FAILED error_code=CONTAINER_DIED")
	})
}
