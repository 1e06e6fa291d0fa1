package dockerx

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/agbox/agbox/dockerx/internal/credentials"
)

// pull runs one pull to completion. name has a tag or digest.
func (e *Engine) pull(ctx context.Context, name reference.Named, report func(PullProgress)) (Image, error) {
	p := attempt{registry: reference.Domain(name), within: e.o.PullTimeout}
	p.found, p.notFound = credentials.Get(ctx, e.o.CredentialsDir, name)
	err := e.doWithin(ctx, OpPullImage, e.o.PullTimeout, func(within context.Context, c *client.Client) error {
		return p.pullError(ctx, p.run(within, c, name.String(), report))
	})
	if err != nil {
		return Image{}, err
	}
	return e.InspectImage(ctx, name.String())
}

// attempt is one pull, with the context that its error messages need.
type attempt struct {
	registry string
	found    credentials.Found
	notFound error // why the credentials can't be read
	within   time.Duration
}

func (p *attempt) run(ctx context.Context, c *client.Client, name string, report func(PullProgress)) error {
	header, err := p.found.Header()
	if err != nil {
		return err
	}
	stream, err := c.ImagePull(ctx, name, image.PullOptions{RegistryAuth: header})
	if err != nil {
		return err
	}
	defer stream.Close()
	return readPull(stream, report)
}

// pullMessage is one line of the engine's answer to a pull.
type pullMessage struct {
	ID     string `json:"id"` // usually a layer's ID
	Status string `json:"status"`
	Detail struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"` // <= 0: unknown
	} `json:"progressDetail"`
	Error *struct {
		Message string `json:"message"`
	} `json:"errorDetail"`
}

// readPull reads and reports the progress of a pull until it completes. An error in the stream has a text but no status: it
// is ErrInternal before the engine has reported the first layer, as in a response without a stream; ErrUnavailable
// afterwards, since the registry has the image and grants access to it.
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
			return &classed{err: errors.New(m.Error.Message), class: layers.errorClass()}
		}
		if layers.record(&m) {
			report(layers.sum())
		}
	}
}

// pullLayers holds the state of a pull's layers, by ID.
type pullLayers map[string]pullLayer

type pullLayer struct {
	current, total int64
	done           bool
}

// record applies a message, and reports whether it concerns a layer.
func (p pullLayers) record(m *pullMessage) bool {
	// "Pulling from x/y" carries the tag as its ID.
	if m.ID == "" || strings.HasPrefix(m.Status, "Pulling from ") {
		return false
	}
	layer := p[m.ID]
	layer.update(m)
	p[m.ID] = layer
	return true
}

// update never decreases a number: a download that the engine restarts reports less than before.
func (l *pullLayer) update(m *pullMessage) {
	switch m.Status {
	case "Downloading":
		l.current = max(l.current, m.Detail.Current)
		l.total = max(l.total, m.Detail.Total, l.current)
	case "Extracting": // the download is complete; for a small layer this is the first report of its size
		l.total = max(l.total, m.Detail.Total)
		l.current = l.total
	case "Download complete", "Verifying Checksum":
		l.current = l.total
	case "Pull complete", "Already exists":
		l.current, l.done = l.total, true
	}
}

func (p pullLayers) errorClass() error {
	if len(p) == 0 {
		return errdefs.ErrInternal
	}
	return errdefs.ErrUnavailable
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
