package dockerx

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// line is a message of the engine about a layer.
func line(id, status string, current, total int) string {
	return fmt.Sprintf(`{"status":%q,"progressDetail":{"current":%d,"total":%d},"id":%q}`, status, current, total, id)
}

func TestReadPullAddsUpTheLayers(t *testing.T) {
	var got []PullProgress
	stream := strings.Join([]string{
		`{"status":"Pulling from x/y","id":"1"}`,
		line("a", "Already exists", 0, 0),
		line("b", "Pulling fs layer", 0, 0),
		line("c", "Waiting", 0, 0),
		line("b", "Downloading", 10, 100),
		line("c", "Downloading", 7, -1), // the registry did not report its size
		line("b", "Downloading", 90, 100),
		line("b", "Retrying in 5 seconds", 0, 0),
		line("b", "Downloading", 20, 100), // from the start
		line("b", "Download complete", 0, 0),
		line("c", "Extracting", 1, 8),
		line("b", "Extracting", 50, 100),
		line("b", "Pull complete", 0, 0),
		line("c", "Pull complete", 0, 0),
		`{"status":"Digest: sha256:0"}{"status":"Status: Downloaded newer image for x/y:1"}`,
	}, "\r\n")
	if err := readPull(strings.NewReader(stream), func(p PullProgress) { got = append(got, p) }); err != nil {
		t.Fatal(err)
	}
	want := []PullProgress{
		{Done: 1, Layers: 1},
		{Done: 1, Layers: 2},
		{Done: 1, Layers: 3},
		{10, 100, 1, 3},
		{17, 107, 1, 3},
		{97, 107, 1, 3},
		{97, 107, 1, 3},
		{97, 107, 1, 3},
		{107, 107, 1, 3},
		{108, 108, 1, 3},
		{108, 108, 1, 3},
		{108, 108, 2, 3},
		{108, 108, 3, 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// For any messages in any order, no number decreases and current never exceeds total.
func TestProgressNeverFalls(t *testing.T) {
	statuses := []string{"Downloading", "Extracting", "Verifying Checksum", "Download complete", "Pull complete", "Already exists", "Waiting"}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		layers, last := pullLayers{}, PullProgress{}
		for range 50 {
			m := pullMessage{ID: string(rune('a' + random.IntN(4))), Status: statuses[random.IntN(len(statuses))]}
			m.Detail.Current, m.Detail.Total = random.Int64N(100), random.Int64N(100)-1
			layers.record(&m)
			now := layers.sum()
			if now.Current < last.Current || now.Total < last.Total || now.Done < last.Done || now.Layers < last.Layers ||
				now.Current > now.Total || now.Done > now.Layers {
				t.Fatalf("seed %d: %+v, then %+v after %+v", seed, last, now, m)
			}
			last = now
		}
	}
}

func TestEnsureImageReportsOnlyItsOwnPull(t *testing.T) {
	pulled := false
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			pulled = true
			fmt.Fprint(w, line("a", "Downloading", 5, 5), line("a", "Pull complete", 0, 0))
		} else if pulled {
			answer(w, http.StatusOK, map[string]string{"Id": "sha256:1"})
		} else {
			answer(w, http.StatusNotFound, map[string]string{"message": "no such image"})
		}
	})
	e, _ := newEngine(t, s.host)
	var got []PullProgress
	ensure := func(always, told bool) {
		t.Helper()
		got = nil
		o := PullOptions{Always: always, Progress: func(p PullProgress) { got = append(got, p) }}
		if _, err := e.EnsureImage(t.Context(), "x/y:1", o); err != nil {
			t.Fatal(err)
		}
		if end := (PullProgress{5, 5, 1, 1}); told != (len(got) > 0) || told && got[len(got)-1] != end {
			t.Errorf("reported %v", got)
		}
	}
	ensure(false, true)
	ensure(false, false) // a local image: no pull
	ensure(true, true)
}
