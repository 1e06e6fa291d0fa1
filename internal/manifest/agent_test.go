package manifest_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/manifest"
)

const agentHead = "apiVersion: agbox/v1\nkind: Agent\nmetadata:\n  name: bot\n"

func TestAgentReadsEveryField(t *testing.T) {
	got, err := manifest.Parse([]byte(agentHead+`  labels: {a: b}
spec:
  sandbox_id: web
  command: [bot, --fast]
  envs: {A: "1"}
  working_dir: /x
  format: acp
  ready: process
  desired_state: stopped
  restart_policy: always
  start_timeout: 2m
  initial_prompt: |
    read TODO.md
    and begin
  nudge: finish
  save_command: [save]
  context: {mode: inject, max_turns: 7, max_characters: 5000, model_window_tokens: 200000, summary_command: [sum]}
  on_interrupted: hold
  labels: {c: d}
`), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Name != "bot" || got[0].Spec != nil {
		t.Fatalf("got %v", got)
	}
	equal(t, got[0].Agent, &agboxv1.AgentSpec{
		SandboxId: "web", Command: []string{"bot", "--fast"}, Envs: map[string]string{"A": "1"}, WorkingDir: "/x", Format: "acp", Ready: "process",
		DesiredState: "stopped", RestartPolicy: "always", StartTimeout: durationpb.New(2 * time.Minute), InitialPrompt: "read TODO.md\nand begin\n",
		Nudge: "finish", SaveCommand: []string{"save"}, OnInterrupted: "hold", Labels: map[string]string{"a": "b", "c": "d"},
		Context: &agboxv1.AgentContextPolicy{
			Mode: "inject", MaxTurns: 7, MaxCharacters: 5000, ModelWindowTokens: 200_000, SummaryCommand: []string{"sum"},
		},
	})
}

func TestSandboxesAndAgentsShareAFile(t *testing.T) {
	got, err := manifest.Parse([]byte(head+"spec: {image: x}\n---\nspec: {sandbox_id: web}\n"+agentHead), "")
	if err != nil || len(got) != 2 || got[0].Spec.GetImage() != "x" || got[0].Agent != nil || got[1].Agent.GetSandboxId() != "web" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestMistakesInAgentManifestsAreReported(t *testing.T) {
	for text, want := range map[string]string{
		agentHead + "spec: {image: x}":                                       "line 5: spec.image: unknown key; known here: sandbox_id, command",
		agentHead + "spec: {context: inject}":                                "spec.context: must be a mapping, such as {mode: inject, max_turns: 20}",
		agentHead + "spec: {save_command: git push}":                         `spec.save_command: must be a list, such as [sh, -c, "git commit -am wip"]`,
		agentHead + "spec: {start_timeout: 60}":                              "spec.start_timeout: must be a duration with a unit",
		agentHead + "  labels: {a: b}\nspec: {labels: {a: c}}":               "metadata.labels.a: differs from spec.labels.a",
		"apiVersion: agbox/v1\nkind: agent\nmetadata: {labels: {a: b}}\n":    `kind: "agent" is not known; did you mean "Agent"?`,
		"apiVersion: [1]\nkind: X\nmetadata: {labels: {a: b}}\nspec: {x: y}": "line 1: apiVersion: must be a string",
		"apiVersion: [1]\nkind: Agent\nmetadata: {name: x}\nspec: {y: z}":    "spec.y: unknown key; known here: sandbox_id",
		"apiVersion: agbox/v1\nspec: {}\n":                                   `kind: is required; write "Sandbox" or "Agent"`,
	} {
		if _, err := manifest.Parse([]byte(text), "/h"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestAgentSpecsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := &agboxv1.AgentSpec{}
		drawMessage(t, "spec", spec.ProtoReflect())
		readAgentBack(t, spec)
	})
}

func readAgentBack(t interface{ Fatalf(string, ...any) }, spec *agboxv1.AgentSpec) {
	text, err := manifest.JSON(spec)
	if err != nil || !json.Valid(text) {
		t.Fatalf("%v: %s of %v", err, text, spec)
	}
	got, err := manifest.Parse([]byte(`{"apiVersion":"agbox/v1","kind":"Agent","metadata":{"name":"bot"},"spec":`+string(text)+"}"), "")
	if err != nil || !proto.Equal(got[0].Agent, spec) {
		t.Fatalf("%v\nfrom %s\ngot  %v\nwant %v", err, text, got, spec)
	}
}
