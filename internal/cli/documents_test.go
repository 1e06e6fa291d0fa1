package cli

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/manifest"
)

// What get prints as YAML, apply reads back as the same spec, whatever the values look like.
func TestPrintedYAMLIsReadBack(t *testing.T) {
	for _, value := range []string{
		"", " ", "1.10", "0x1", "1_000", "true", "yes", "null", "~", "- a", "a: b", "a #b", "# c", "'", `"`, `\`, "\n", "a\nb", "a\n", "\na", " a", "a ",
		"\t", "\t\n", "{a}", "[a]", "&a", "*a", "!a", "|", ">", "%a", "@a", "`", "---", "...", "2001-01-01", ".inf", ".nan", "\u00e4", "\u2028", "\U0001f600",
		"\x01", "\x7f", "\r", "a\r\nb", "a\n\n", "a\n\n\nb\n", "  a\n b\n", "?", "? a", ":", "a:", ":a", "=", "<<", "1e3", "+1", "-", "--", "a,b",
	} {
		readBack(t, value)
	}
	rapid.Check(t, func(t *rapid.T) { readBack(t, rapid.String().Draw(t, "value")) })
}

func readBack(t interface{ Fatalf(string, ...any) }, value string) {
	spec := &agboxv1.CreateSpec{
		Image: "x", Labels: map[string]string{"a": value, "1": "b"}, Envs: map[string]string{"A": value, "true": value},
		Mounts:           []*agboxv1.MountSpec{{Source: "/" + value, Target: "/t", Writable: true}},
		RequiredServices: []*agboxv1.ServiceSpec{{Name: "web", Image: "x", Envs: map[string]string{"A": value}}, {Name: "db", Image: value}},
		OptionalServices: []*agboxv1.ServiceSpec{{Name: "1", Image: "x", Command: []string{value}}},
		CpuLimit:         0.25, PidsLimit: 100, Gpus: "2", MemoryLimit: "1g",
	}
	doc, err := (&app{}).sandboxKind().document(&agboxv1.SandboxHandle{SandboxId: "abcd", Name: "web", Spec: spec, Labels: spec.Labels, ErrorMessage: value})
	if err != nil {
		t.Fatalf("%q: %v", value, err)
	}
	var out bytes.Buffer
	if err := (&app{Streams: Streams{Out: &out}}).printYAML([]kindDocument{doc}, &output{format: "yaml"}); err != nil {
		t.Fatalf("%q: %v", value, err)
	}
	got, err := manifest.Parse(out.Bytes(), "/home")
	if err != nil {
		t.Fatalf("%q: %v in\n%s", value, err, out.String())
	}
	if len(got) != 1 || got[0].Name != "web" || !proto.Equal(got[0].Spec, spec) {
		t.Fatalf("%q: got %v from\n%s", value, got, out.String())
	}
}
