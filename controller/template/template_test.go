package template

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

var hash = strings.Repeat("ab", 32)

func step(kind string, args ...string) *agboxv1.TemplateStep {
	return &agboxv1.TemplateStep{Type: kind, Args: args, FilesHash: hash}
}

func recipeOf(steps ...*agboxv1.TemplateStep) (*recipe, error) {
	return newRecipe(&agboxv1.StartTemplateBuildRequest{Steps: steps}, options{from: "sha256:1", instance: "i", owner: "me", build: "b", uid: 1000, gid: 1000})
}

func TestStepsBecomeLines(t *testing.T) {
	const prelude = 7
	for _, row := range []struct {
		step *agboxv1.TemplateStep
		want []string
	}{
		{step("RUN", "echo \"$A\" && \\\n x"), []string{`RUN ["/bin/sh","-c",` + strings.TrimSuffix(strings.TrimPrefix(list(runShell), "["), "]") + `,"echo \"$A\" && \\\n x"]`}},
		{step("ENV", "A", `1 $B "x" \`, "B", "2"), []string{`ENV A="1 \$B \"x\" \\"`, `ENV B="2"`}},
		{step("USER", "root"), []string{"USER root"}},
		{step("COPY", "./a/../b", "/c d", "", ""), []string{`COPY --chown=user ["0/b","/c d"]`}},
		{step("COPY", "a$b", "x", "root", "0755"), []string{`COPY ["0/a\\$b","x"]`}},
	} {
		r, err := recipeOf(row.step)
		if err != nil || !slices.Equal(r.lines[prelude:], row.want) {
			t.Errorf("%v: %q, %v; want %q", row.step, r.lines[prelude:], err, row.want)
		}
	}
	r, err := recipeOf(step("RUN", "id", "root"), step("WORKDIR", "x y"), step("WORKDIR", "../z"))
	if err != nil || r.dir != "/home/user/z" || r.user != "user" || r.lines[prelude] != "USER root" || r.lines[prelude+2] != "USER user" ||
		r.lines[len(r.lines)-1] != "WORKDIR /home/user/z" || r.steps[prelude] != 1 || r.steps[len(r.steps)-1] != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := recipeOf(); err != nil || len(r.lines) != 3 {
		t.Errorf("without steps, which need no shell in the image: %v, %v", r, err)
	}
}

// TestForcedStepsAreNotCached: a line that no other build has comes before the first one.
func TestForcedStepsAreNotCached(t *testing.T) {
	forced := step("RUN", "two")
	forced.Force = true
	r, err := recipeOf(step("RUN", "one"), forced, step("RUN", "three"))
	if err != nil || len(r.lines) != 11 || !strings.HasPrefix(r.lines[8], "LABEL ") || !strings.HasSuffix(r.lines[8], `="b"`) {
		t.Errorf("%q, %v", r.lines, err)
	}
}

func TestStepsThatAreRefused(t *testing.T) {
	for _, s := range []*agboxv1.TemplateStep{
		step("EXPOSE", "80"), step("RUN"), step("RUN", "x", "a b"), step("RUN", "x\x00"), step("RUN", strings.Repeat("x", maxLine)), step("USER", "a\nRUN b"), step("USER", ""),
		step("ENV", "A"), step("ENV", "A B", "x"), step("ENV", "A", "x\nRUN y"), step("WORKDIR", "a\nb"), step("WORKDIR", `a\`), step("WORKDIR", ""),
		step("COPY", "a"), step("COPY", "/etc/passwd", "/x"), step("COPY", "../a", "/x"), step("COPY", "a/../../b", "/x"), step("COPY", "a", "/x\ny"),
		step("COPY", "**/a", "/x"), step("COPY", "a", "/x", "u --from=y"), step("COPY", "a", "/x", "", "9"), {Type: "COPY", Args: []string{"a", "b"}, FilesHash: "../x"},
	} {
		if _, err := recipeOf(s); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "step 1: ") {
			t.Errorf("%.100v: %v", s, err)
		}
	}
	if _, err := recipeOf(slices.Repeat([]*agboxv1.TemplateStep{step("RUN", "x")}, maxSteps+1)...); !errdefs.IsInvalidArgument(err) {
		t.Errorf("too many: %v", err)
	}
}

func packed(t *testing.T, mode int64, zipped bool, entries ...*tar.Header) ([]*tar.Header, error) {
	t.Helper()
	var in, out bytes.Buffer
	w := tar.NewWriter(&in)
	for _, h := range entries {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, strings.Repeat("x", int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	content := in.Bytes()
	if zipped {
		var z bytes.Buffer
		g := gzip.NewWriter(&z)
		_, _ = g.Write(content)
		_ = g.Close()
		content = z.Bytes()
	}
	r := &recipe{lines: []string{"FROM x"}, sources: []source{{step: 3, hash: hash, mode: mode}}}
	if err := pack(&out, r, func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }); err != nil {
		return nil, err
	}
	var got []*tar.Header
	for a := tar.NewReader(&out); ; {
		h, err := a.Next()
		if err != nil {
			return got[1:], nil
		}
		got = append(got, h)
	}
}

func TestArchivesAreBelowADirectory(t *testing.T) {
	for _, zipped := range []bool{false, true} {
		got, err := packed(t, -1, zipped,
			&tar.Header{Name: "./d/", Typeflag: tar.TypeDir, Mode: 0o700}, &tar.Header{Name: "d/a", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 5, Uid: 7, Uname: "me"},
			&tar.Header{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, &tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "d/a"},
		)
		if err != nil || len(got) != 4 || got[0].Name != "3/d/" || got[1].Name != "3/d/a" || got[1].Mode != 0o755 || got[1].Uid != 0 || got[1].Uname != "" ||
			got[2].Linkname != "/etc/passwd" || got[3].Linkname != "3/d/a" {
			t.Errorf("%+v, %v", got, err)
		}
	}
	got, err := packed(t, 0o640, false, &tar.Header{Name: "d", Typeflag: tar.TypeDir}, &tar.Header{Name: "a", Typeflag: tar.TypeReg})
	if err != nil || got[0].Mode != 0o750 || got[1].Mode != 0o640 {
		t.Errorf("with a mode: %+v, %v", got, err)
	}
}

func TestArchivesThatEscapeAreRefused(t *testing.T) {
	file := func(name string) *tar.Header { return &tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 1} }
	link := func(kind byte, name, to string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: kind, Linkname: to}
	}
	for name, entries := range map[string][]*tar.Header{
		"absolute":                {file("/etc/passwd")},
		"above":                   {file("../Dockerfile")},
		"above in the middle":     {file("a/../../Dockerfile")},
		"through a link":          {link(tar.TypeSymlink, "l", ".."), file("l/Dockerfile")},
		"over a link":             {link(tar.TypeSymlink, "l", "../Dockerfile"), file("l")},
		"a link over a directory": {file("d/a"), link(tar.TypeSymlink, "d", "..")},
		"a hard link above":       {link(tar.TypeLink, "l", "../Dockerfile")},
		"a hard link to nothing":  {link(tar.TypeLink, "l", "a")},
		"a hard link to a link":   {link(tar.TypeSymlink, "a", ".."), link(tar.TypeLink, "l", "a")},
		"a device":                {{Name: "a", Typeflag: tar.TypeChar}},
		"a FIFO":                  {{Name: "a", Typeflag: tar.TypeFifo}},
	} {
		if got, err := packed(t, -1, false, entries...); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestArchivesThatGrowAreRefused: by the size that a header names, by their number of entries, and by what decompresses.
func TestArchivesThatGrowAreRefused(t *testing.T) {
	archive := func(entries ...*tar.Header) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, h := range entries {
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
		}
		return out.Bytes() // without the content
	}
	many := slices.Repeat([]*tar.Header{{Name: "d", Typeflag: tar.TypeDir}}, 5)
	for name, row := range map[string]struct {
		content []byte
		entries int
		read    int64
	}{
		"a large file":       {archive(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: maxUnpacked + 1}), 10, maxRead},
		"too many entries":   {archive(many...), 4, maxRead},
		"large decompressed": {archive(many...), 10, 1000},
	} {
		var z bytes.Buffer
		g := gzip.NewWriter(&z)
		_, _ = g.Write(row.content)
		_ = g.Close()
		p := &packer{out: tar.NewWriter(io.Discard), size: maxUnpacked, entries: row.entries, read: row.read}
		err := p.source(source{mode: -1}, func(string) (io.ReadCloser, error) { return io.NopCloser(&z), nil })
		if !errors.Is(err, errPacked) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
