package dockertest

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/wait"
)

// BuildImage implements Subject for Dockerfiles of the forms that the daemon generates. A RUN step takes BuildDelay; of its shell command the
// fake knows "echo WORD", "sleep N" and "exit N", and everything else does nothing. No event tells of its container.
func (f *Fake) BuildImage(ctx context.Context, spec dockerx.BuildSpec) (id string, err error) {
	lines, files, err := readContext(spec.Context)
	if err != nil {
		return "", err
	}
	err = f.callUnlocked(ctx, dockerx.OpBuildImage, func(ctx context.Context) error {
		for n, line := range lines {
			spec.Log(fmt.Sprintf("Step %d/%d : %s", n+1, len(lines), line))
			if id, err = f.buildStep(ctx, id, line, files, spec); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// readContext returns the lines of the Dockerfile and the other files.
func readContext(r io.Reader) (lines []string, files map[string]string, err error) {
	files = map[string]string{}
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		content, err := io.ReadAll(t)
		if err != nil {
			return nil, nil, err
		}
		files[h.Name] = string(content)
	}
	for line := range strings.Lines(files["Dockerfile"]) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return nil, nil, fmt.Errorf("the Dockerfile cannot be empty: %w", errdefs.ErrInvalidArgument)
	}
	for _, line := range lines {
		if word, _, _ := strings.Cut(line, " "); !slices.Contains([]string{"FROM", "LABEL", "ENV", "USER", "WORKDIR", "COPY", "RUN"}, word) {
			return nil, nil, fmt.Errorf("unknown instruction: %s: %w", word, errdefs.ErrInvalidArgument)
		}
	}
	return lines, files, nil
}

// buildStep returns the image of one more step on another.
func (f *Fake) buildStep(ctx context.Context, on, line string, files map[string]string, spec dockerx.BuildSpec) (id string, err error) {
	word, rest, _ := strings.Cut(line, " ")
	cached := false
	err = f.locked(func() error {
		if word == "FROM" {
			img, ok := f.image(rest)
			if !ok {
				return fmt.Errorf("no such image: %s: %w", rest, errdefs.ErrFailedPrecondition)
			}
			id, cached = img.ID, true
			return nil
		}
		for made, m := range f.made {
			if m.base == on && m.step == line && !spec.Fresh {
				id, cached = made, true
			}
		}
		return nil
	})
	if err != nil || cached {
		return id, err
	}
	if word == "RUN" {
		end := f.startStep(on, spec)
		err := f.runStep(ctx, rest, spec.Log)
		if end(); err != nil {
			return "", err
		}
	}
	err = f.locked(func() error {
		img, ok := f.image(on)
		if !ok {
			return fmt.Errorf("no such image: %s: %w", on, errdefs.ErrFailedPrecondition)
		}
		m := madeImage{files: f.filesOf(on), created: f.clock().UTC(), base: on, step: line}
		switch word {
		case "LABEL":
			key, value := keyValue(rest)
			img.Labels = maps.Clone(img.Labels)
			if img.Labels == nil {
				img.Labels = map[string]string{}
			}
			img.Labels[key] = value
		case "ENV":
			key, value := keyValue(rest)
			img.Env = append(slices.DeleteFunc(img.Env, func(v string) bool { return strings.HasPrefix(v, key+"=") }), key+"="+value)
		case "USER":
			img.User = rest
		case "WORKDIR":
			img.WorkingDir = rest
		case "COPY":
			copyStep(m.files, rest, files)
		}
		img.ID = ""
		img = f.withID(img)
		f.images[img.ID], f.made[img.ID], id = img, m, img.ID
		return nil
	})
	return id, err
}

func keyValue(text string) (key, value string) {
	key, quoted, _ := strings.Cut(text, "=")
	value, err := strconv.Unquote(quoted)
	if err != nil {
		value = quoted
	}
	return key, value
}

// startStep adds the container of a step on an image, until end is called.
func (f *Fake) startStep(on string, spec dockerx.BuildSpec) (end func()) {
	var id string
	f.do(func() {
		img, _ := f.image(on)
		id = f.newID()
		f.containers[id] = &fakeContainer{driver: f.driver, files: f.filesOf(on), detail: dockerx.ContainerDetail{
			Container: dockerx.Container{ID: id, Name: "step-" + id, Labels: maps.Clone(img.Labels), State: dockerx.StateRunning, Created: f.clock().UTC()},
			Image:     on, Running: true, Limits: dockerx.Limits{MemoryBytes: spec.MemoryBytes, NanoCPUs: int64(spec.CPUs * 1e9)},
		}}
	})
	spec.Log(" ---> Running in " + id[:12])
	return func() { f.do(func() { delete(f.containers, id) }) }
}

// runStep carries out what the fake knows of a command in JSON.
func (f *Fake) runStep(ctx context.Context, command string, log func(string)) error {
	var args []string
	_ = json.Unmarshal([]byte(command), &args) // a command of another form does nothing
	if err := wait.For(ctx, f.BuildDelay); err != nil {
		return err
	}
	for _, arg := range args {
		if word, ok := strings.CutPrefix(arg, "echo "); ok {
			log(word)
		}
		if word, ok := strings.CutPrefix(arg, "sleep "); ok {
			seconds, _ := strconv.Atoi(word)
			if err := wait.For(ctx, time.Duration(seconds)*time.Second); err != nil {
				return err
			}
		}
		if code, ok := strings.CutPrefix(arg, "exit "); ok {
			return fmt.Errorf("The command '%s' returned a non-zero code: %s: %w", strings.Join(args, " "), code, errdefs.ErrFailedPrecondition) //nolint:staticcheck // as the engine says it
		}
	}
	return nil
}

// copyStep copies one file of the context to an absolute path.
func copyStep(to tree, args string, files map[string]string) {
	if at := strings.IndexByte(args, '['); at >= 0 {
		args = args[at:]
	}
	var paths []string
	if err := json.Unmarshal([]byte(args), &paths); err == nil && len(paths) == 2 {
		to[paths[1]] = node{mode: 0o640, content: []byte(files[paths[0]])}
	}
}
