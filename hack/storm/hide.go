package main

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
)

// inspection matches the path of a request for one container or one network, by ID or by name.
var inspection = regexp.MustCompile(`/containers/[^/]+/json$|/networks/[^/]+$`)

// labelled decodes the labels of an object in an answer of the engine: lists and inspected networks have them at the top level, inspected
// containers in their configuration.
type labelled struct {
	Labels map[string]string
	Config struct{ Labels map[string]string }
}

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
		body, hidden, err = l.shorten(body)
	} else {
		hidden, err = l.hides(body)
		if hidden {
			resp.StatusCode, resp.Status = http.StatusNotFound, ""
			body = []byte(`{"message":"No such object, by the storm"}` + "\n")
		}
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
func (l *lossy) shorten(body []byte) (rest []byte, hidden bool, err error) {
	var all []json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, false, err
	}
	shown := []json.RawMessage{}
	for _, object := range all {
		hides, err := l.hides(object)
		if err != nil {
			return nil, false, err
		}
		if !hides {
			shown = append(shown, object)
		}
	}
	rest, err = json.Marshal(shown)
	return rest, len(shown) < len(all), err
}

// hides reports whether an object is hidden now.
func (l *lossy) hides(object []byte) (bool, error) {
	var o labelled
	if err := json.Unmarshal(object, &o); err != nil {
		return false, err
	}
	return l.p.denies(o.Labels) || l.p.denies(o.Config.Labels), nil
}
