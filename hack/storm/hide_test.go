package main

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/host/naming"
)

// labelledEngine answers lists with the objects of sandboxes a and b and the engine's own network, and inspections with those of a or b.
type labelledEngine struct{}

func (labelledEngine) RoundTrip(r *http.Request) (*http.Response, error) {
	labels := func(of string) string { return `"Labels":{"` + naming.SandboxID + `":"` + of + `"}` }
	of := "b"
	if strings.Contains(r.URL.Path, "-a") {
		of = "a"
	}
	body := `{"Id":"` + of + `",` + labels(of) + `}`
	switch {
	case r.Method != http.MethodGet:
		body = "done"
	case isList(r):
		body = `[{"Id":"a",` + labels("a") + `},{"Id":"b",` + labels("b") + `},{"Id":"bridge","Labels":null}]`
	case strings.Contains(r.URL.Path, "/containers/"):
		body = `{"Id":"` + of + `","Config":{` + labels(of) + `}}`
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte(body)))}, nil
}

// TestTheProxyHides: every list and every inspection omits the hidden objects, and only those.
func TestTheProxyHides(t *testing.T) {
	const lists, gone, there, done = "list", "gone", "there", "done"
	for name, row := range map[string]struct {
		victim *string // nil: the proxy is honest
		list   string  // IDs in a list
		a, b   string  // inspections
	}{
		"nothing":      {nil, "a b bridge", there, there},
		"one sandbox":  {new("a"), "b bridge", gone, there},
		"all":          {new(""), "bridge", gone, gone},
		"a stranger's": {new("c"), "a b bridge", there, there},
	} {
		t.Run(name, func(t *testing.T) {
			p := &proxy{count: func(string) {}, mode: honest, rng: rand.New(rand.NewPCG(1, 1)), old: map[string][]byte{}}
			if row.victim != nil {
				p.hide(*row.victim)
			}
			l := &lossy{p, labelledEngine{}}
			for _, one := range [][3]string{
				{"GET", "/v1.41/containers/json?all=1", lists}, {"GET", "/v1.41/networks", lists},
				{"GET", "/v1.41/containers/agbox-primary-a/json", row.a}, {"GET", "/v1.41/networks/agbox-net-a", row.a},
				{"GET", "/v1.41/containers/agbox-primary-b/json", row.b}, {"GET", "/v1.41/networks/agbox-net-b", row.b},
				{"POST", "/v1.41/containers/agbox-primary-a/start", done},
			} {
				for range 20 { // hide affects each request
					got, status := l.ask(t, one[0], one[1])
					ok := map[string]bool{
						gone: status == http.StatusNotFound, there: status == http.StatusOK && strings.Contains(got, `"Id"`),
						done: got == "done", lists: strings.Join(ids(got), " ") == row.list,
					}[one[2]]
					if !ok {
						t.Fatalf("%s %s: %d %s, want %s %s", one[0], one[1], status, got, one[2], row.list)
					}
				}
			}
			p.set(honest)
			if got, _ := l.ask(t, "GET", "/v1.41/networks"); len(ids(got)) != 3 {
				t.Errorf("honest again, the list is %s", got)
			}
		})
	}
}

func (l *lossy) ask(t *testing.T, method, path string) (body string, code int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := l.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), resp.StatusCode
}

// ids returns the IDs in a list, in order.
func ids(list string) (ids []string) {
	for _, part := range strings.Split(list, `"Id":"`)[1:] {
		id, _, _ := strings.Cut(part, `"`)
		ids = append(ids, id)
	}
	return ids
}
