package manifest_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/manifest"
)

func TestJSON(t *testing.T) {
	got, err := manifest.JSON(&agboxv1.CreateSpec{
		Image: "a<b>", RequiredServices: []*agboxv1.ServiceSpec{
			{Name: "z", Image: "x", Healthcheck: &agboxv1.HealthcheckConfig{Interval: durationpb.New(1500 * time.Millisecond)}}, {Name: "a"},
		},
		Labels: map[string]string{"b": "1", "a": ""}, IdleTtl: durationpb.New(0), CpuLimit: 2, Ports: []*agboxv1.PortSpec{{ContainerPort: 80}},
	})
	const want = `{"image":"a<b>","required_services":{"z":{"image":"x","healthcheck":{"interval":"1.500s"}},"a":{}},` +
		`"labels":{"a":"","b":"1"},"idle_ttl":"0s","ports":[{"container_port":80}],"cpu_limit":2}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	if got, err := manifest.JSON((*agboxv1.CreateSpec)(nil)); err != nil || string(got) != "{}" {
		t.Errorf("nil is %s, %v", got, err)
	}
	event, err := manifest.JSON(&agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_EXEC_FAILED, OccurredAt: timestamppb.New(time.Unix(1, 0)), SandboxState: agboxv1.SandboxState_SANDBOX_STATE_READY,
		Details: &agboxv1.SandboxEvent_Exec{Exec: &agboxv1.ExecEventDetails{ExecState: agboxv1.ExecState_EXEC_STATE_FAILED, ErrorMessage: "EXEC_STATE_FAILED"}},
	})
	const wantEvent = `{"event_type":"EXEC_FAILED","occurred_at":"1970-01-01T00:00:01Z","sandbox_state":"READY",` +
		`"exec":{"exec_state":"FAILED","error_message":"EXEC_STATE_FAILED"}}`
	if err != nil || string(event) != wantEvent {
		t.Errorf("got %s, %v\nwant %s", event, err, wantEvent)
	}
	twice := []*agboxv1.ServiceSpec{{Name: "a"}, {Name: "a"}}
	if got, err := manifest.JSON(&agboxv1.CreateSpec{OptionalServices: twice}); err == nil || !strings.Contains(err.Error(), `two services have the name "a"`) {
		t.Errorf("a service was lost: %s, %v", got, err)
	}
}

func TestSpecsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { readBack(t, drawSpec(t, "spec")) })
}

func readBack(t interface{ Fatalf(string, ...any) }, spec *agboxv1.CreateSpec) {
	text, err := manifest.JSON(spec)
	if err != nil || !json.Valid(text) {
		t.Fatalf("%v: %s of %v", err, text, spec)
	}
	got, err := manifest.ParseSpec(text, "")
	if err != nil || !proto.Equal(got, spec) {
		t.Fatalf("%v\nfrom %s\ngot  %v\nwant %v", err, text, got, spec)
	}
}
