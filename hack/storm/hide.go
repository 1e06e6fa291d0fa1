package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"

	"github.com/agbox/agbox/internal/host/naming"
)

// inspection matches the path of a request for one container or one network, by ID or by name.
var inspection = regexp.MustCompile(`/containers/[^/]+/json$|/networks/[^/]+$`)

// without removes the hidden objects from an answer: it shortens a list and replaces an inspection by a 404. Other answers pass unchanged.
func (l *lossy) without(r *http.Request, resp *http.Response) (*http.Response, error) {
	list := isList(r)
	if resp.StatusCode != http.StatusOK || !list && (r.Method != http.MethodGet || !inspection.MatchString(r.URL.Path)) {
		return resp, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBuffered))
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	var hidden bool
	if list {
		body, hidden, err = l.p.shorten(body)
	} else if hidden = l.p.denies(body); hidden {
		resp.StatusCode, resp.Status = http.StatusNotFound, ""
		body = []byte(`{"message":"No such object, by the storm"}` + "\n")
	}
	if err != nil {
		return nil, err
	}
	if hidden {
		l.p.count("proxy " + string(hide))
	}
	return withBody(resp, body), nil
}

// shorten returns a list without its hidden objects.
func (p *proxy) shorten(body []byte) (rest []byte, hidden bool, err error) {
	var all []json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, false, err
	}
	shown := slices.DeleteFunc(slices.Clone(all), func(object json.RawMessage) bool { return p.denies(object) })
	rest, err = json.Marshal(shown)
	return rest, len(shown) < len(all), err
}

// denies reports whether an object in an answer of the engine is hidden now. Such an object has one label with its sandbox's ID, in lists at
// the top level and in inspections elsewhere; a label whose value quotes JSON has its quotes escaped.
func (p *proxy) denies(object []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, id, found := bytes.Cut(object, []byte(`"`+naming.SandboxID+`":"`))
	return p.mode == hide && found && (p.victim == "" || bytes.HasPrefix(id, []byte(p.victim+`"`)))
}
