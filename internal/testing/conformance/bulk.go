package conformance

import (
	"slices"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func bulkDelete(t *testing.T, c *client) {
	c.sub(t, "an empty selector is refused", func(c *client) {
		_, err := c.DeleteSandboxes(c.ctx(), &agboxv1.DeleteSandboxesRequest{})
		c.refused(err, invalid("label_selector", "label_selector must not be empty"))
	})
	c.sub(t, "what has all pairs is deleted, and nothing else", func(c *client) {
		group := newID()
		in := func(n string) string { return c.create(labelled("group", group), labelled("n", n)) }
		one, two, other := in("1"), in("1"), in("2")
		c.await(two, ready)
		resp := c.bulk(map[string]string{"group": group, "n": "1"})
		got, want := slices.Sorted(slices.Values(resp.GetDeletedSandboxIds())), slices.Sorted(slices.Values([]string{one, two}))
		if !slices.Equal(got, want) || resp.GetDeletedCount() != 2 {
			c.Errorf("%v", resp)
		}
		for _, id := range []string{one, two} {
			c.await(id, deleted)
			list := c.history(id)
			c.rows(list[len(list)-2:], rowToDelete, rowDeleted)
		}
		c.await(other, ready)
		if resp := c.bulk(map[string]string{"group": group, "n": "3"}); resp.GetDeletedCount() != 0 || len(resp.GetDeletedSandboxIds()) != 0 {
			c.Errorf("of none: %v", resp)
		}
	})
}

func (c *client) bulk(selector map[string]string) *agboxv1.DeleteSandboxesResponse {
	c.Helper()
	resp, err := c.DeleteSandboxes(c.ctx(), &agboxv1.DeleteSandboxesRequest{LabelSelector: selector})
	c.must(err)
	return resp
}
