package dockerx

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/errdefs"
)

// pullMessage is one line of the engine's answer to a pull.
type pullMessage struct {
	ID     string `json:"id"` // of a layer, mostly
	Status string `json:"status"`
	Detail struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"` // <= 0: not known
	} `json:"progressDetail"`
	Error *struct {
		Message string `json:"message"`
	} `json:"errorDetail"`
}

// readPull reads the progress of a pull to its end and reports it. An error in it has no status, only text.
func readPull(stream io.Reader, report func(PullProgress)) error {
	layers := pullLayers{}
	for decoder := json.NewDecoder(stream); ; {
		var m pullMessage
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m.Error != nil {
			return fmt.Errorf("%s: %w", m.Error.Message, errdefs.ErrUnavailable)
		}
		if layers.note(&m) {
			report(layers.sum())
		}
	}
}

// pullLayers is what is known of a pull's layers, by ID.
type pullLayers map[string]pullLayer

type pullLayer struct {
	current, total int64
	done           bool
}

// note takes in a message, and reports whether it tells of a layer.
func (p pullLayers) note(m *pullMessage) bool {
	// "Pulling from x/y" carries the tag as its ID.
	if m.ID == "" || strings.HasPrefix(m.Status, "Pulling from ") {
		return false
	}
	layer := p[m.ID]
	layer.take(m)
	p[m.ID] = layer
	return true
}

// take keeps the numbers from falling: a download that the engine begins anew tells of less than before.
func (l *pullLayer) take(m *pullMessage) {
	switch m.Status {
	case "Downloading":
		l.current = max(l.current, m.Detail.Current)
		l.total = max(l.total, m.Detail.Total, l.current)
	case "Extracting": // of what is here in full; a small layer tells of its size for the first time
		l.total = max(l.total, m.Detail.Total)
		l.current = l.total
	case "Download complete", "Verifying Checksum":
		l.current = l.total
	case "Pull complete", "Already exists":
		l.current, l.done = l.total, true
	}
}

func (p pullLayers) sum() PullProgress {
	sum := PullProgress{Layers: len(p)}
	for _, l := range p {
		sum.Current += l.current
		sum.Total += l.total
		if l.done {
			sum.Done++
		}
	}
	return sum
}
