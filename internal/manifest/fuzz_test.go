package manifest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/manifest"
)

// No text makes the reader panic, and each spec it reads is equal after writing and reading it again.
func FuzzParseSpec(f *testing.F) {
	for _, seed := range append(seeds(f),
		"", "{}", "image: a", "image: a\n---\nimage: b", "image: &x a\nenvs: {A: *x}", "envs:\n  A: |\n    x\n  B: >-\n    y\n    z\n",
		"required_services:\n  db:\n    image: pg\n    healthcheck: {test: [CMD, x], interval: 1m30s, retries: 3}\noptional_services: {c: }",
		"cpu_limit: 0.5\npids_limit: 0x40\nmemory_limit: 1g", "idle_ttl: 9000000000s", "idle_ttl: -1h", "mounts: [{source: ~/x, target: /x, writable: true}]",
		`"envs": {"\u0041": "\ud83d\ude00\x01", '<<': ''}`, "? image\n: a", "<<: {image: a}", "image: !x a", "%YAML 1.2\n---\nimage: a\n...\n",
		"envs: {A: hidden", "\t", "- - - -", "[[[[", "image: \"\\", "command: [a, 'b''c', \"\\t\"]\n#", "image: *a", "copies:\n- source: \"~\"\n  target: /c\n  exclude_patterns: ['*']",
	) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		spec, err := manifest.ParseSpec(text, "/home/u")
		if err != nil {
			if !strings.Contains(err.Error(), " ") {
				t.Errorf("bad text %q", err)
			}
			return
		}
		if !utf8.Valid(text) {
			return // JSON cannot represent it, and no message can be sent with it
		}
		validate.Create(spec)
		readBack(t, spec)
		if got := manifest.Merge(spec, spec); !proto.Equal(got, spec) {
			t.Errorf("merged with itself: got %v, want %v", got, spec)
		}
	})
}

// seeds returns the specs of the example manifests.
func seeds(f *testing.F) (all []string) {
	f.Helper()
	files, err := filepath.Glob("../../config/examples/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		docs, err := manifest.Parse(text, "/home/u")
		if err != nil {
			f.Fatalf("%s: %v", file, err)
		}
		for _, doc := range docs {
			if doc.Agent != nil {
				continue
			}
			spec, err := manifest.JSON(doc.Spec)
			if err != nil {
				f.Fatal(err)
			}
			all = append(all, string(spec))
		}
	}
	return all
}
