package validate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

func agent(change func(*agboxv1.AgentSpec)) *agboxv1.AgentSpec {
	spec := &agboxv1.AgentSpec{SandboxId: "web", Command: []string{"bot"}}
	change(spec)
	return spec
}

func TestAgent(t *testing.T) {
	long := strings.Repeat("x", validate.MaxPromptBytes+1)
	for name, tc := range map[string]struct {
		change func(*agboxv1.AgentSpec)
		want   string
	}{
		"the least": {func(*agboxv1.AgentSpec) {}, ""},
		"everything": {func(s *agboxv1.AgentSpec) {
			proto.Merge(s, &agboxv1.AgentSpec{
				Envs: map[string]string{"A": "secret"}, WorkingDir: "/x//", Format: "acp", Ready: "process", DesiredState: "stopped",
				RestartPolicy: "always", StartTimeout: durationpb.New(time.Hour), InitialPrompt: "hi", Nudge: long[1:], SaveCommand: []string{"save"},
				Context:       &agboxv1.AgentContextPolicy{Mode: "inject", MaxTurns: 500, MaxCharacters: 1000, ModelWindowTokens: 1, SummaryCommand: []string{"sum"}},
				OnInterrupted: "hold", Labels: map[string]string{"a": "b"},
			})
		}, ""},
		"nothing": {func(s *agboxv1.AgentSpec) { proto.Reset(s) }, "sandbox_id: is required; command: must not be empty"},
		"unknown words": {func(s *agboxv1.AgentSpec) {
			s.Format, s.Ready, s.DesiredState, s.RestartPolicy, s.OnInterrupted = "claude", "now", "RUNNING", "sometimes", "drop"
		}, `format: "claude" is not known: write "native", "claude-stream-json", "acp"; ready: is not known; desired_state: is not known; ` +
			`restart_policy: is not known; on_interrupted: is not known`},
		"bad env":            {func(s *agboxv1.AgentSpec) { s.Envs = map[string]string{"A B": "secret"} }, "envs[A B]: bad name"},
		"the daemon's envs":  {func(s *agboxv1.AgentSpec) { s.Envs = map[string]string{"AGBOX_AGENT_ID": "x"} }, "envs[AGBOX_AGENT_ID]: is set by agboxd"},
		"relative directory": {func(s *agboxv1.AgentSpec) { s.WorkingDir = "x" }, "working_dir: must be an absolute path"},
		"no time to start":   {func(s *agboxv1.AgentSpec) { s.StartTimeout = durationpb.New(0) }, "start_timeout: must be a duration from 1s to 1h"},
		"too long to start":  {func(s *agboxv1.AgentSpec) { s.StartTimeout = durationpb.New(time.Hour + 1) }, "start_timeout: must be"},
		"no duration":        {func(s *agboxv1.AgentSpec) { s.StartTimeout = &durationpb.Duration{Seconds: 1 << 60} }, "start_timeout: must be"},
		"long prompts":       {func(s *agboxv1.AgentSpec) { s.InitialPrompt, s.Nudge = long, long }, "initial_prompt: is 262145 bytes; nudge: is 262145 bytes"},
		"a blank prompt":     {func(s *agboxv1.AgentSpec) { s.InitialPrompt = " \n" }, "initial_prompt: must not be blank"},
		"no program to save": {func(s *agboxv1.AgentSpec) { s.SaveCommand = []string{""} }, "save_command[0]: must name a program"},
		"session paths":      {func(s *agboxv1.AgentSpec) { s.SessionPaths = []string{"~/.tool/sessions", "/data/x y"} }, ""},
		"no sessions":        {func(s *agboxv1.AgentSpec) { s.SessionPaths = []string{"none"} }, ""},
		"bad session paths": {func(s *agboxv1.AgentSpec) {
			s.SessionPaths = []string{"none", "x", "~/../x", "/", "~/", "/a/", "/a/../b", "~/b", "~/b", "~user/x", "/a\x00", ""}
		}, "session_paths[0]: must be the only entry; session_paths[1]: must be a path; session_paths[2]: must be; session_paths[3]: must be; " +
			"session_paths[4]: must be; session_paths[5]: must be; session_paths[6]: must be; session_paths[8]: ~/b was given before; " +
			"session_paths[9]: must be; session_paths[10]: must be; session_paths[11]: must be"},
		"too many session paths": {func(s *agboxv1.AgentSpec) {
			for i := range 17 {
				s.SessionPaths = append(s.SessionPaths, fmt.Sprint("/", i))
			}
		}, "session_paths: has 17 entries"},
		"bad labels":          {func(s *agboxv1.AgentSpec) { s.Labels = map[string]string{"": "x"} }, `labels[""]: has a bad key`},
		"unknown mode":        {func(s *agboxv1.AgentSpec) { s.Context = &agboxv1.AgentContextPolicy{Mode: "some"} }, `context.mode: write "auto", "inject", "none"`},
		"too many turns":      {func(s *agboxv1.AgentSpec) { s.Context = &agboxv1.AgentContextPolicy{MaxTurns: 501} }, "context.max_turns: must be 1 to 500"},
		"too few characters":  {func(s *agboxv1.AgentSpec) { s.Context = &agboxv1.AgentContextPolicy{MaxCharacters: 999} }, "context.max_characters: must be 1000"},
		"too many characters": {func(s *agboxv1.AgentSpec) { s.Context = &agboxv1.AgentContextPolicy{MaxCharacters: 1_000_001} }, "context.max_characters: must be 1000"},
		"no summary program":  {func(s *agboxv1.AgentSpec) { s.Context = &agboxv1.AgentContextPolicy{SummaryCommand: []string{""}} }, "context.summary_command[0]: must name"},
		"too large":           {func(s *agboxv1.AgentSpec) { s.Command = []string{strings.Repeat("x", validate.MaxSpecBytes)} }, "spec: the limit is 1048576"},
		"a field of the future": {func(s *agboxv1.AgentSpec) { s.ProtoReflect().SetUnknown(protoreflect.RawFields{0xf8, 0x7f, 1}) },
			"spec: has field number 2047"},
	} {
		t.Run(name, func(t *testing.T) { check(t, validate.Agent(agent(tc.change)), tc.want) })
	}
}

func TestCreateAgent(t *testing.T) {
	spec := agent(func(*agboxv1.AgentSpec) {})
	for want, req := range map[string]*agboxv1.CreateAgentRequest{
		"":                                 {Spec: spec},
		"spec: is required":                {},
		"agent_id: must be 4 to 180 ASCII": {Spec: spec, AgentId: strings.Repeat("a", 181)},
		"name: must be 1 to 63 lower-case": {Spec: spec, AgentId: strings.Repeat("a", 180), Name: "A"},
	} {
		check(t, validate.CreateAgent(req), want)
	}
}

func TestPromptAgent(t *testing.T) {
	for want, req := range map[string]*agboxv1.PromptAgentRequest{
		"":                                      {AgentId: "abcd", Text: "hi", PromptId: "p-01"},
		"agent_id: is required":                 {Text: "hi"},
		"text: is required":                     {AgentId: "abcd"},
		"text: must not be blank":               {AgentId: "abcd", Text: "\n"},
		"text: is 262145 bytes":                 {AgentId: "abcd", Text: strings.Repeat("x", 262145)},
		"prompt_id: must be 4 to 200 ASCII":     {AgentId: "abcd", Text: "hi", PromptId: "a.b.c"},
		"prompt_id: the first and last a lett":  {AgentId: "abcd", Text: "hi", PromptId: "abc-"},
		"agent_id: required; text: is required": {},
	} {
		check(t, validate.PromptAgent(req), want)
	}
}

func TestDrain(t *testing.T) {
	for want, req := range map[string]*agboxv1.DrainRequest{
		"":                                       {Mode: agboxv1.DrainMode_DRAIN_MODE_DETACH, Wait: durationpb.New(0), Reason: "reboot", Exit: true},
		"mode: 7 is not known":                   {Mode: 7},
		"wait: must be a duration from 0 to 45m": {Wait: durationpb.New(time.Hour)},
		"save_each: 0 to 10m; save_all: to 10m":  {SaveEach: durationpb.New(-1), SaveAll: durationpb.New(11 * time.Minute)},
		"reason: is 1025 bytes":                  {Reason: strings.Repeat("x", 1025)},
	} {
		check(t, validate.Drain(req), want)
	}
}

func TestAgentDefaultsMakeSpecsThatMeanTheSameEqual(t *testing.T) {
	short := agent(func(s *agboxv1.AgentSpec) { s.WorkingDir = "/x/" })
	long := agent(func(s *agboxv1.AgentSpec) {
		s.WorkingDir, s.Format, s.Ready, s.DesiredState, s.RestartPolicy, s.OnInterrupted = "/x", "native", "protocol", "running", "on-failure", "retry"
		s.Nudge, s.SessionPaths = "none", []string{"none"}
		s.StartTimeout = durationpb.New(time.Minute)
		s.Context = &agboxv1.AgentContextPolicy{Mode: "auto", MaxTurns: 50, MaxCharacters: 40_000}
	})
	before := proto.CloneOf(short)
	if got := validate.AgentDefaults(short); !proto.Equal(got, long) || !proto.Equal(short, before) {
		t.Errorf("got %v; the argument is %v", got, short)
	}
	if changes := validate.DiffAgent(short, long); len(changes) != 0 {
		t.Errorf("differ in %v", changes)
	}
	if validate.AgentDefaults(nil) != nil || validate.NormalizeAgent(nil) != nil {
		t.Error("nil became something")
	}
}

func TestTheNudgeOfASpec(t *testing.T) {
	for _, c := range []struct{ format, nudge, want string }{
		{"", "", ""}, {"native", "", ""}, {"native", "finish", "finish"}, {"native", "none", ""},
		{"acp", "finish", "finish"}, {"acp", "none", ""}, {"claude-stream-json", "none", ""},
		{"acp", "", "commit"}, {"claude-stream-json", "", "commit"},
	} {
		got := validate.Nudge(agent(func(s *agboxv1.AgentSpec) { s.Format, s.Nudge = c.format, c.nudge }))
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s, %q: %q", c.format, c.nudge, got)
		}
	}
}

func TestTheSessionPathsOfASpec(t *testing.T) {
	for _, c := range []struct {
		format, mode string
		given        []string
		want         string
	}{
		{"native", "", nil, ""}, {"claude-stream-json", "", nil, "~/.claude/projects"}, {"claude-stream-json", "auto", nil, "~/.claude/projects"},
		{"claude-stream-json", "inject", nil, ""}, {"claude-stream-json", "none", nil, ""}, {"claude-stream-json", "inject", []string{"/x"}, "/x"},
		{"native", "", []string{"/x"}, "/x"}, {"acp", "", []string{"none"}, ""}, {"acp", "", nil, "~/.claude/projects"},
	} {
		spec := agent(func(s *agboxv1.AgentSpec) {
			s.Format, s.SessionPaths, s.Context = c.format, c.given, &agboxv1.AgentContextPolicy{Mode: c.mode}
		})
		got := validate.SessionPaths(spec)
		if c.want == "" && len(got) > 0 || c.want != "" && !slices.Contains(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestDiffAgentNamesFieldsAndHidesEnvs(t *testing.T) {
	before := agent(func(s *agboxv1.AgentSpec) { s.Envs = map[string]string{"A": "secret"} })
	after := agent(func(s *agboxv1.AgentSpec) {
		s.Envs = map[string]string{"A": "secret2"}
		s.Command, s.Nudge, s.Context = []string{"bot", "-v"}, "stop", &agboxv1.AgentContextPolicy{MaxTurns: 7}
	})
	var got []string
	for _, c := range validate.DiffAgent(before, after) {
		got = append(got, c.Path+": "+c.Old+" -> "+c.New)
	}
	want := `command: ["bot"] -> ["bot", "-v"]|envs[A]: (set) -> (changed)|nudge: none -> stop|` +
		`context: {mode: auto, max_turns: 50, max_characters: 40000} -> {mode: auto, max_turns: 7, max_characters: 40000}`
	if strings.Join(got, "|") != want {
		t.Errorf("got  %q\nwant %q", strings.Join(got, "|"), want)
	}
	if all := validate.DiffAgent(nil, before); len(all) < 5 || all[0].Old != "" {
		t.Errorf("of a new one: %v", all)
	}
}
