package manifest_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/manifest"
)

const head = "apiVersion: agbox/v1\nkind: Sandbox\nmetadata:\n  name: web\n"

func TestSpecReadsEveryField(t *testing.T) {
	got, err := manifest.ParseSpec([]byte(`
image: a:b # comment
mounts:
  - {source: ~/x, target: /x, writable: true}
  - source: "/y"
    target: '/y'
copies: [{source: "~", target: /c, exclude_patterns: [a, "*.o"]}]
builtin_tools: [git]
required_services:
  zz: {image: z}
  db:
    image: pg
    envs: {A: "1"}
    healthcheck: {test: [CMD, x], interval: 1m30s, timeout: 5s, retries: 3, start_period: 0, start_interval: 100ms}
    post_start_on_primary: [echo hi]
    ports: [{container_port: 5432}]
    cpu_limit: 2
  "10":
optional_services:
labels: &l {a: b}
envs:
  TEXT: |
    one
    two
  EMPTY:
  "odd key": "yes"
idle_ttl: 1800s
command: [sleep, "1"]
user: "1000"
working_dir: /x
ports:
- {container_port: 80, host_port: 8080, protocol: udp}
cpu_limit: 0.5
memory_limit: 512MiB
disk_limit: 1g
pids_limit: 100
gpus: all
runtime: runsc
restart_policy: on-failure
pull_policy: never
on_log_limit: kill
timeout: 0
on_timeout: pause
auto_resume: true
`), "/home/u")
	if err != nil {
		t.Fatal(err)
	}
	want := &agboxv1.CreateSpec{
		Image: "a:b",
		Mounts: []*agboxv1.MountSpec{
			{Source: "/home/u/x", Target: "/x", Writable: true}, {Source: "/y", Target: "/y"},
		},
		Copies:       []*agboxv1.CopySpec{{Source: "/home/u", Target: "/c", ExcludePatterns: []string{"a", "*.o"}}},
		BuiltinTools: []string{"git"},
		RequiredServices: []*agboxv1.ServiceSpec{{Name: "zz", Image: "z"}, {
			Name: "db", Image: "pg", Envs: map[string]string{"A": "1"},
			Healthcheck: &agboxv1.HealthcheckConfig{
				Test: []string{"CMD", "x"}, Interval: durationpb.New(90 * time.Second), Timeout: durationpb.New(5 * time.Second),
				Retries: 3, StartPeriod: durationpb.New(0), StartInterval: durationpb.New(100 * time.Millisecond),
			},
			PostStartOnPrimary: []string{"echo hi"},
			Ports:              []*agboxv1.PortSpec{{ContainerPort: 5432}},
			CpuLimit:           2,
		}, {Name: "10"}},
		Labels:  map[string]string{"a": "b"},
		Envs:    map[string]string{"TEXT": "one\ntwo\n", "EMPTY": "", "odd key": "yes"},
		IdleTtl: durationpb.New(30 * time.Minute),
		Command: []string{"sleep", "1"}, User: "1000", WorkingDir: "/x",
		Ports:    []*agboxv1.PortSpec{{ContainerPort: 80, HostPort: 8080, Protocol: "udp"}},
		CpuLimit: 0.5, MemoryLimit: "512MiB", DiskLimit: "1g", PidsLimit: 100, Gpus: "all", Runtime: "runsc",
		RestartPolicy: "on-failure", PullPolicy: "never", OnLogLimit: "kill",
		Timeout: durationpb.New(0), OnTimeout: "pause", AutoResume: true,
	}
	equal(t, got, want)
}

// TestScalarsAreTextWhereAStringIsWanted: as they are written, not as YAML reads them.
func TestScalarsAreTextWhereAStringIsWanted(t *testing.T) {
	for _, text := range []string{"8080", "-1", "+1", "1.10", "0x1F", "0o17", "1_000", "1e3", ".inf", "-.inf", ".NaN", "true", "False", "2026-11-23"} {
		got, err := manifest.ParseSpec([]byte("image: x\ncommand: [sleep, "+text+"]\nenvs:\n  A: "+text+"\n  B: &b "+text+" # why\n  C: *b\n  "+text+": x\n"), "")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		equal(t, got, &agboxv1.CreateSpec{Image: "x", Command: []string{"sleep", text}, Envs: map[string]string{"A": text, "B": text, "C": text, text: "x"}})
	}
}

// TestAByteOrderMarkIsNoText: editors write one.
func TestAByteOrderMarkIsNoText(t *testing.T) {
	spec, err := manifest.ParseSpec([]byte("\xef\xbb\xbfimage: a\r\n"), "")
	if err != nil || spec.GetImage() != "a" {
		t.Errorf("%v, %v", spec, err)
	}
}

func TestSpecRefuses(t *testing.T) {
	deep := 1 << 20 // bytes
	if testing.Short() {
		deep /= 8
	}
	for name, tc := range map[string]struct{ text, want string }{
		"empty":              {"", "the text is empty"},
		"only a comment":     {"# x\n---\n", "the text is empty"},
		"UTF-16":             {"\xff\xfei\x00m\x00", "the text is not UTF-8"},
		"two documents":      {"image: a\n---\nimage: b", "line 3: a second document"},
		"not a mapping":      {"hello", "line 1: must be a mapping"},
		"unknown key":        {"image: a\nimagee: b", "line 2: imagee: unknown key; did you mean image?"},
		"camel case":         {"idleTtl: 1s", "line 1: idleTtl: unknown key"},
		"nested unknown key": {"mounts:\n- source: a\n  targt: b", "line 3: mounts[0].targt: unknown key; did you mean target?"},
		"duplicate key":      {"image: a\nenvs: {}\nimage: b", "line 3: image: duplicate key; first on line 1"},
		"duplicate env":      {"envs:\n  A: hidden\n  A: hidden", "line 3: envs.A: duplicate key"},
		"list as string":     {"image: [a]", "line 1: image: must be a string"},
		"string as list":     {"builtin_tools: git", "line 1: builtin_tools: must be a list"},
		"string as bool":     {"mounts: [{writable: \"true\"}]", "line 1: mounts[0].writable: must be true or false"},
		"null in a list":     {"mounts:\n -\n", "mounts[0]: must not be empty"},
		"no unit":            {"idle_ttl: 30", "line 1: idle_ttl: must be a duration with a unit"},
		"no duration":        {"idle_ttl: soon", "line 1: idle_ttl: must be a duration with a unit"},
		"negative retries":   {"required_services: {db: {healthcheck: {retries: -1}}}", "required_services.db.healthcheck.retries: must be a whole number from 0"},
		"fraction of pids":   {"pids_limit: 1.5", "pids_limit: must be a whole number from 0"},
		"too many pids":      {"pids_limit: 4294967296", "pids_limit: must be a whole number from 0"},
		"cpus with a unit":   {"cpu_limit: 2cpus", "cpu_limit: must be a number, such as 2 or 0.5, or thousandths of a CPU, such as 500m"},
		"endless cpus":       {"cpu_limit: .inf", "cpu_limit: must be a number"},
		"no number of cpus":  {"cpu_limit: .nan", "cpu_limit: must be a number"},
		"services as a list": {"image: a\nrequired_services:\n- name: db", `line 3: required_services: must be a mapping from the names, such as "db: {image: postgres}", not a list`},
		"optional as a list": {"optional_services: []", "optional_services: must be a mapping from the names"},
		"services as text":   {"optional_services: db", "optional_services: must be a mapping"},
		"name in a service":  {"required_services:\n  db:\n    name: db", "line 3: required_services.db.name: must be left out: the key above is the name"},
		"service twice":      {"required_services:\n  db: {}\n  db: {}", "line 3: required_services.db: duplicate key; first on line 2"},
		"key in a service":   {"required_services: {db: {sauce: x}}", "required_services.db.sauce: unknown key; known here: image, envs"},
		"merge key":          {"envs:\n  <<: {A: b}", `merge keys ("<<") are not supported`},
		"tag":                {"image: !x a", "tags (!...) are not supported"},
		"unknown alias":      {"image: *a", "alias"},
		"another home":       {"mounts: [{source: ~bob/x}]", "mounts[0].source: only"},
		"tab":                {"image:\n\ta: b", "line 2"},
		"unclosed":           {"envs: {A: hidden", "line 1"},
		"deep brackets":      {strings.Repeat("[", deep), "line 1: nested too deeply"},
		"deep braces":        {strings.Repeat("{a: ", deep/4), "line 1: nested too deeply"},
		"deep dashes":        {strings.Repeat("- ", deep/2), "line 1: nested too deeply"},
		"deep keys":          {strings.Repeat("? ", deep/2), "line 1: nested too deeply"},
		"very many keys":     {strings.Repeat("a: b\n", 25_000), "line 20001: more than 20000 entries"},
		"very many items":    {"builtin_tools:\n" + strings.Repeat("-\n", 25_000), "line 20001: more than 20000 entries"},
		"keys in brackets":   {"x: {" + strings.Repeat("?a,", 25_000) + "}", "line 1: more than 20000 entries"},
		"closed too early":   {"]\n" + strings.Repeat("a: b\n", 25_000), "more than 20000 entries"},
		"huge":               {strings.Repeat(" ", 3<<20), "larger than 2097152 bytes"},
		"alias bomb":         {bomb(), "too many values"},
		"alias to itself":    {"envs: &a {B: *a}", "must be a string"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := manifest.ParseSpec([]byte(tc.text), "/h")
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// bomb is a text with aliases that repeat one list very often.
func bomb() string {
	return "copies:\n- exclude_patterns: &p [" + strings.Repeat("a,", 5000) + "a]\n" + strings.Repeat("- exclude_patterns: *p\n", 100)
}

func TestHomeUnknown(t *testing.T) {
	_, err := manifest.ParseSpec([]byte("mounts: [{source: ~/x}]"), "")
	if err == nil || !strings.Contains(err.Error(), "home directory on the host of the daemon is not known") {
		t.Errorf("got %v", err)
	}
}

func TestParse(t *testing.T) {
	got, err := manifest.Parse([]byte(head+"  labels: {a: b, both: same}\nspec:\n  image: x\n  labels: {both: same}\nstatus: {state: READY}\n"+
		"--- # next\n---\n"+strings.Replace(head, "web", "db", 1)+"...\n---\n# end\n"), "/h")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Name != "web" || got[1].Name != "db" || got[1].Line < 10 {
		t.Fatalf("got %v", got)
	}
	equal(t, got[0].Spec, &agboxv1.CreateSpec{Image: "x", Labels: map[string]string{"a": "b", "both": "same"}})
	equal(t, got[1].Spec, &agboxv1.CreateSpec{})
}

func TestParseRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":          {"", "the text is empty"},
		"no version":       {"kind: Sandbox", `apiVersion: is required; write "agbox/v1"`},
		"another version":  {"apiVersion: v2\nkind: Sandbox", `apiVersion: "v2" is not known`},
		"no kind":          {"apiVersion: agbox/v1", "kind: is required"},
		"another kind":     {"apiVersion: agbox/v1\nkind: Pod", `kind: "Pod" is not known`},
		"no name":          {"apiVersion: agbox/v1\nkind: Sandbox\nspec: {}", "metadata.name: is required"},
		"unknown key":      {head + "specs: {}", "line 5: specs: unknown key"},
		"unknown metadata": {head + "  uid: x", "line 5: metadata.uid: unknown key"},
		"unknown in spec":  {head + "spec:\n  img: x", "line 6: spec.img: unknown key"},
		"label conflict":   {head + "  labels: {a: b}\nspec: {labels: {a: c}}", "metadata.labels.a: differs from spec.labels.a"},
		"second broken":    {head + "---\nkind: X", "line 6: apiVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := manifest.Parse([]byte(tc.text), "/h"); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	base := &agboxv1.CreateSpec{
		Image: "a", BuiltinTools: []string{"x", "y"}, Envs: map[string]string{"A": "1", "B": "1"}, IdleTtl: durationpb.New(time.Hour + 5),
		Mounts: []*agboxv1.MountSpec{{Source: "/a"}},
	}
	before := proto.CloneOf(base)
	got := manifest.Merge(base, &agboxv1.CreateSpec{
		BuiltinTools: []string{"z"}, Envs: map[string]string{"B": "2", "C": "2"}, IdleTtl: durationpb.New(0),
	})
	equal(t, got, &agboxv1.CreateSpec{
		Image: "a", BuiltinTools: []string{"z"}, Envs: map[string]string{"A": "1", "B": "2", "C": "2"}, IdleTtl: durationpb.New(0),
		Mounts: []*agboxv1.MountSpec{{Source: "/a"}},
	})
	equal(t, base, before)
	equal(t, manifest.Merge(nil, nil), &agboxv1.CreateSpec{})
}

func equal(t *testing.T, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", prototext.Format(got), prototext.Format(want))
	}
}
