package dockerx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/client"
)

// BuildSpec is what BuildImage builds.
type BuildSpec struct {
	// Context is a tar stream with a file named Dockerfile. The engine unpacks it in a directory of its own.
	Context io.Reader
	// Fresh runs all steps, also those whose results the engine has.
	Fresh bool
	// MemoryBytes and CPUs limit each container of a RUN step; 0: no limit. The engine's builder has no limit of processes.
	MemoryBytes int64
	CPUs        float64
	// Within bounds the build; 0: the deadline of the operation.
	Within time.Duration
	// Log is called for each line of output, in order, and not after BuildImage has returned. It must not block.
	Log func(line string)
}

// BuildImage runs the engine's own builder, and returns the ID of an unnamed image. Each step leaves an unnamed image, which later builds use as a
// cache, and which is listed by the labels that the Dockerfile sets before it. A build whose caller leaves is cancelled, and its running
// container removed; the images of its finished steps stay. The Dockerfile's FROM must be a local image: the builder has no credentials.
//
// Errors: ErrFailedPrecondition with the engine's message when a step fails; ErrInvalidArgument for a Dockerfile that does not parse;
// ErrUnavailable, also when the deadline has passed.
func (e *Engine) BuildImage(ctx context.Context, spec BuildSpec) (id string, err error) {
	within := spec.Within
	if within == 0 {
		within = Deadline(OpBuildImage)
	}
	err = e.doWithin(ctx, OpBuildImage, within, func(ctx context.Context, c *client.Client) error {
		resp, err := c.ImageBuild(ctx, spec.Context, build.ImageBuildOptions{
			Version: build.BuilderV1, Dockerfile: "Dockerfile", Remove: true, ForceRemove: true, NoCache: spec.Fresh,
			Memory: spec.MemoryBytes, MemorySwap: spec.MemoryBytes, // together: no swap
			CPUPeriod: cpuPeriod, CPUQuota: int64(spec.CPUs * cpuPeriod),
		})
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		id, err = readBuild(resp.Body, spec.Log)
		return err
	})
	return id, about("build an image", err)
}

// readBuild reads the engine's answer to a build until it completes. An error in it has a text but no status.
func readBuild(stream io.Reader, log func(string)) (id string, err error) {
	lines := lineWriter{log: log}
	for decoder := json.NewDecoder(stream); ; {
		var m struct {
			Stream string `json:"stream"`
			Aux    struct{ ID string }
			Error  *struct {
				Message string `json:"message"`
			} `json:"errorDetail"`
		}
		switch err := decoder.Decode(&m); {
		case errors.Is(err, io.EOF) && id == "":
			return "", fmt.Errorf("the engine's answer broke off: %w", errdefs.ErrUnavailable)
		case errors.Is(err, io.EOF):
			lines.flush()
			return id, nil
		case err != nil:
			return "", err
		case m.Error != nil:
			lines.flush()
			return "", &classed{err: errors.New(m.Error.Message), class: errdefs.ErrFailedPrecondition}
		}
		lines.write(m.Stream)
		if m.Aux.ID != "" {
			id = m.Aux.ID
		}
	}
}

// maxLine bounds a line of a build's output in bytes; a longer one is split.
const maxLine = 16 << 10

// lineWriter splits text into lines.
type lineWriter struct {
	log  func(string)
	rest string
}

func (l *lineWriter) write(text string) {
	l.rest += text
	for {
		n := strings.IndexByte(l.rest, '\n')
		switch {
		case n >= 0 && n <= maxLine:
			l.log(strings.TrimSuffix(l.rest[:n], "\r"))
			l.rest = l.rest[n+1:]
		case len(l.rest) > maxLine:
			l.log(l.rest[:maxLine])
			l.rest = l.rest[maxLine:]
		default:
			return
		}
	}
}

func (l *lineWriter) flush() {
	if l.rest != "" {
		l.log(l.rest)
		l.rest = ""
	}
}
