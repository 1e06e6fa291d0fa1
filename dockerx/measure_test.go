package dockerx

import (
	"io"
	"net/http"
	"testing"

	"github.com/containerd/errdefs"
)

// TestMeasureTakesNoSizeForUnknown: engines report a failed walk as -1, or leave the size out.
func TestMeasureTakesNoSizeForUnknown(t *testing.T) {
	for answer, want := range map[string]int64{
		`{"Id":"a","SizeRw":0}`: 0, `{"Id":"a","SizeRw":104857600}`: 100 << 20, `{"Id":"a","SizeRw":-1}`: -1, `{"Id":"a"}`: -1, `{}`: -1, `null`: -1,
	} {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("size") != "1" {
				t.Errorf("asked %s", r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		})
		e, _ := newEngine(t, s.host)
		n, err := e.MeasureContainer(t.Context(), "a")
		if want < 0 {
			if !errdefs.IsUnavailable(err) {
				t.Errorf("%s: %d, %v", answer, n, err)
			}
		} else if err != nil || n != want {
			t.Errorf("%s: %d, %v; want %d", answer, n, err, want)
		}
	}
}
