package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

// buildContext returns a context with a Dockerfile on the conformance image, and one file.
func (w *world) buildContext(lines ...string) *bytes.Buffer {
	w.Helper()
	dockerfile := fmt.Sprintf("FROM %s\nLABEL %s=%q\n%s\n", must(w.e.InspectImage(w.ctx, ConformImage))(w).ID, worldLabel, w.name, strings.Join(lines, "\n"))
	var out bytes.Buffer
	t := tar.NewWriter(&out)
	for _, file := range [][2]string{{"Dockerfile", dockerfile}, {"0/file", "12345"}} {
		w.ok(t.WriteHeader(&tar.Header{Name: file[0], Typeflag: tar.TypeReg, Mode: 0o640, Size: int64(len(file[1]))}))
		_, err := t.Write([]byte(file[1]))
		w.ok(err)
	}
	w.ok(t.Close())
	return &out
}

// build runs a build and returns its output.
func (w *world) build(ctx context.Context, fresh bool, lines ...string) (id string, output []string, err error) {
	w.Helper()
	id, err = w.e.BuildImage(ctx, dockerx.BuildSpec{
		Context: w.buildContext(lines...), Fresh: fresh, MemoryBytes: 64 << 20, CPUs: 1, Log: func(line string) { output = append(output, line) },
	})
	return id, output, err
}

const runHello = `RUN ["/bin/sh", "-c", "echo hello"]`

func checkBuild(w *world) {
	lines := []string{`ENV A="a b"`, runHello, `COPY ["0/file", "/tmp/file"]`, `WORKDIR /tmp`}
	id, output, err := w.build(w.ctx, false, lines...)
	w.ok(err)
	if !slices.Contains(output, "hello") {
		w.Errorf("the output is %q", output)
	}
	img := must(w.e.InspectImage(w.ctx, id))(w)
	if !slices.Contains(img.Env, "A=a b") || img.WorkingDir != "/tmp" || img.Labels[worldLabel] != w.name {
		w.Errorf("the image is %+v", img)
	}
	again, output, err := w.build(w.ctx, false, lines...)
	w.ok(err)
	if again != id || slices.Contains(output, "hello") {
		w.Errorf("built again: %s in place of %s, with the output %q", again, id, output)
	}
	_, output, err = w.build(w.ctx, true, lines...)
	w.ok(err)
	if !slices.Contains(output, "hello") {
		w.Errorf("the output of a fresh build is %q", output)
	}

	all := must(w.e.ListImages(w.ctx, w.labels))(w)
	n := slices.IndexFunc(all, func(i dockerx.LocalImage) bool { return i.ID == id })
	if n < 0 || len(all[n].Refs) != 0 || all[n].Parent == "" {
		w.Fatalf("%s is not among %+v", id, all)
	}
	if err := w.e.RemoveImage(w.ctx, all[n].Parent); err != nil { // containerd's store needs no parent
		w.refused(err, errdefs.ErrFailedPrecondition)
	}

	spec := w.spec("built", "")
	spec.Image = id
	c := w.create(spec)
	w.ok(w.e.StartContainer(w.ctx, c))
	if content, err := w.e.ReadContainerFile(w.ctx, c, "/tmp/file", 5); err != nil || string(content) != "12345" {
		w.Errorf("in a container of the image: %q, %v", content, err)
	}
	w.ok(w.e.RemoveContainer(w.ctx, c))
	w.removeImages()
}

func checkBuildEnds(w *world) {
	_, output, err := w.build(w.ctx, false, runHello, `RUN ["/bin/sh", "-c", "exit 3"]`)
	w.refused(err, errdefs.ErrFailedPrecondition)
	if !strings.Contains(fmt.Sprint(err), "returned a non-zero code: 3") || !slices.Contains(output, "hello") {
		w.Errorf("%v, with the output %q", err, output)
	}
	w.refused(errOf(w.e.BuildImage(w.ctx, dockerx.BuildSpec{Context: w.buildContext("NONSENSE"), Log: func(string) {}})), errdefs.ErrInvalidArgument)

	ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
	defer cancel()
	_, _, err = w.build(ctx, false, runHello, `RUN ["/bin/sh", "-c", "sleep 60"]`)
	if err == nil {
		w.Error("a build of a minute has ended in 2 s")
	}
	w.eventually("the container of the build is removed", func() bool { return len(must(w.e.ListContainers(w.ctx, w.labels))(w)) == 0 })
	for _, i := range must(w.e.ListImages(w.ctx, w.labels))(w) {
		if len(i.Refs) > 0 {
			w.Errorf("left: %+v", i)
		}
	}
	w.removeImages()
}
