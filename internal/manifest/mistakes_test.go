package manifest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/manifest"
)

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	text := head + `  labels: {a: [1]}
spec:
  image: x
  imagee: y
  envs: {A: {}, B: good, C: [true]}
  idle_ttl: 30
  command: [sleep, [5], {a: 6}]
  mounts: [{source: ~bob/x, targt: /x}, "/a:/b"]
  required_services:
    db: {name: db, healthcheck: {interval: 5}}
`
	_, err := manifest.Parse([]byte(text), "/h")
	want := []string{
		"line 5: metadata.labels.a: must be a string",
		"line 8: spec.imagee: unknown key",
		"line 9: spec.envs.A: must be a string",
		"line 9: spec.envs.C: must be a string",
		"line 10: spec.idle_ttl: must be a duration",
		"line 11: spec.command[1]: must be a string",
		"line 11: spec.command[2]: must be a string",
		"line 12: spec.mounts[0].source: only",
		"line 12: spec.mounts[0].targt: unknown key",
		"line 12: spec.mounts[1]: must be a mapping",
		"line 14: spec.required_services.db.name: must be left out",
		"line 14: spec.required_services.db.healthcheck.interval: must be a duration",
	}
	wantMistakes(t, err, want...)
}

func TestMistakesOfAllDocumentsAreReported(t *testing.T) {
	_, err := manifest.Parse([]byte(head+"spec: {image: [1]}\n---\n"+head+"spec: {user: [0]}\n---\nkind: X\n"), "/h")
	wantMistakes(t, err, "line 5: spec.image", "line 11: spec.user", "line 13: apiVersion")
}

func TestContradictoryLabelsAreReportedByLine(t *testing.T) {
	_, err := manifest.Parse([]byte(head+"  labels:\n    b: x\n    a: x\nspec: {labels: {a: y, b: y}}\n"), "/h")
	wantMistakes(t, err, "line 6: metadata.labels.b: differs", "line 7: metadata.labels.a: differs")
}

// wantMistakes checks the first words of each mistake.
func wantMistakes(t *testing.T, err error, want ...string) {
	t.Helper()
	var got manifest.Errors
	if !errors.As(err, &got) || len(got) != len(want) {
		t.Fatalf("got %d mistakes (%v), want %d", len(got), err, len(want))
	}
	for i, one := range got {
		if !strings.HasPrefix(one.Error(), want[i]) {
			t.Errorf("got %q, want %q", one, want[i])
		}
	}
}

func TestMistakesHaveABound(t *testing.T) {
	_, err := manifest.ParseSpec([]byte("command: ["+strings.Repeat("{},", 15_000)+"]"), "/h")
	var got manifest.Errors
	if !errors.As(err, &got) || len(got) > 33 || got[len(got)-1].Text != "and perhaps more" {
		t.Errorf("got %v", err)
	}
}

// A text in the form of other tools gets an error that shows the required form.
func TestMistakesShowTheForm(t *testing.T) {
	for text, want := range map[string]string{
		`ports: "8080:80"`:               "ports: must be a list, such as [{container_port: 80, host_port: 8080}]",
		`ports: ["8080:80"]`:             "ports[0]: must be a mapping, such as {container_port: 80, host_port: 8080}",
		`mounts: [/a:/b]`:                "mounts[0]: must be a mapping, such as {source: /host/path, target: /path, writable: true}",
		`copies: /a`:                     "copies: must be a list, such as [{source: /host/path, target: /path}]",
		`envs: [A=b]`:                    "envs: must be a mapping, such as {NAME: value}",
		`labels: a`:                      "labels: must be a mapping, such as {NAME: value}",
		`command: sleep 5`:               `command: must be a list, such as [sh, -c, "echo hi"]`,
		`builtin_tools: git`:             "builtin_tools: must be a list, such as [git, npm]",
		`required_services: {db: pg:17}`: "required_services.db: must be a mapping, such as {image: postgres}",
		`required_services: db`:          `required_services: must be a mapping, such as "db: {image: postgres}"`,
		`optional_services: {db: {healthcheck: curl}}`:         `db.healthcheck: must be a mapping, such as {test: [CMD-SHELL, "curl -f localhost"], interval: 5s}`,
		`optional_services: {db: {healthcheck: {test: curl}}}`: `db.healthcheck.test: must be a list, such as [CMD-SHELL, "curl -f localhost"]`,
		"envs:\n\tA: b":       "line 2: a tab; indent with spaces",
		"image: x\n envs: {}": "the indentation",
		"image: x\nfoo bar":   `"key: value"`,
	} {
		if _, err := manifest.ParseSpec([]byte(text), "/h"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestConflictsOfLabelsHaveALine(t *testing.T) {
	_, err := manifest.Parse([]byte(head+"  labels: {a: b}\nspec:\n  labels: {a: c}\n"), "/h")
	wantMistakes(t, err, "line 5: metadata.labels.a: differs from spec.labels.a")
}

func TestUnknownKeysAreAnsweredWithTheOneThatIsMeant(t *testing.T) {
	for key, want := range map[string]string{
		"memory_limt": "memory_limit", "memory": "memory_limit", "memoryLimit": "memory_limit", "cpus": "cpu_limit", "env": "envs",
		"environment": "envs", "workdir": "working_dir", "idleTtl": "idle_ttl",
	} {
		_, err := manifest.ParseSpec([]byte("image: x\n"+key+": y"), "/h")
		if want := "line 2: " + key + ": unknown key; did you mean " + want + "?"; err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestQuantitiesAreReadAsPeopleWriteThem(t *testing.T) {
	got, err := manifest.ParseSpec([]byte("image: x\ncpu_limit: 500m\nmemory_limit: 512Mi\nidle_ttl: 1d\ntimeout: 1d12h\n"), "/h")
	if err != nil || got.GetCpuLimit() != 0.5 || got.GetMemoryLimit() != "512Mi" ||
		got.GetIdleTtl().AsDuration() != 24*time.Hour || got.GetTimeout().AsDuration() != 36*time.Hour {
		t.Errorf("got %v, %v", got, err)
	}
}
