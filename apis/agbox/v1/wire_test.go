package agboxv1_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/testing/conformance"
)

// wire is the contract that clients were generated from, typed by hand from its tables and not from the proto. Nothing
// here may ever change; ours are the numbers from 100 up.
const wire = `
PingRequest: -
PingResponse: 1 version string, 2 daemon string
MountSpec: 1 source string, 2 target string, 3 writable bool
CopySpec: 1 source string, 2 target string, 3 exclude_patterns repeated string
HealthcheckConfig: 1 test repeated string, 2 interval Duration, 3 timeout Duration, 4 retries uint32, 5 start_period Duration, 6 start_interval Duration
ServiceSpec: 1 name string, 2 image string, 3 envs map<string,string>, 4 healthcheck HealthcheckConfig, 5 post_start_on_primary repeated string
CreateSpec: 1 image string, 2 mounts repeated MountSpec, 3 copies repeated CopySpec, 4 builtin_tools repeated string, 5 required_services repeated ServiceSpec, 6 optional_services repeated ServiceSpec, 7 labels map<string,string>, 8 envs map<string,string>, 9 idle_ttl Duration
SandboxHandle: 1 sandbox_id string, 2 state SandboxState, 3 last_event_sequence uint64, 4 required_services repeated ServiceSpec, 5 optional_services repeated ServiceSpec, 6 labels map<string,string>, 7 created_at Timestamp, 8 image string, 9 error_code string, 10 error_message string, 11 state_changed_at Timestamp
SandboxPhaseDetails: 1 phase string, 2 error_code string, 3 error_message string, 4 reason string
ExecEventDetails: 1 exec_id string, 2 exit_code int32, 3 exec_state ExecState, 4 error_code string, 5 error_message string
ServiceEventDetails: 1 service_name string, 2 error_code string, 3 error_message string
SandboxEvent: 1 event_id string, 2 sequence uint64, 3 sandbox_id string, 4 event_type EventType, 5 occurred_at Timestamp, 6 replay bool, 7 snapshot bool, 8 sandbox_state SandboxState, 9 sandbox_phase oneof details SandboxPhaseDetails, 10 exec oneof details ExecEventDetails, 11 service oneof details ServiceEventDetails
ExecStatus: 1 exec_id string, 2 sandbox_id string, 3 state ExecState, 4 command repeated string, 5 cwd string, 6 env_overrides map<string,string>, 7 exit_code int32, 8 error string, 9 last_event_sequence uint64
CreateSandboxRequest: 1 create_spec CreateSpec, 2 sandbox_id string, 3 config_yaml bytes
CreateSandboxResponse: 1 sandbox SandboxHandle
GetSandboxRequest: 1 sandbox_id string
GetSandboxResponse: 1 sandbox SandboxHandle
ListSandboxesRequest: 1 include_deleted bool, 2 label_selector map<string,string>
ListSandboxesResponse: 1 sandboxes repeated SandboxHandle
ResumeSandboxRequest: 1 sandbox_id string
StopSandboxRequest: 1 sandbox_id string
DeleteSandboxRequest: 1 sandbox_id string
DeleteSandboxesRequest: 1 label_selector map<string,string>
DeleteSandboxesResponse: 1 deleted_sandbox_ids repeated string, 2 deleted_count uint32
AcceptedResponse: 1 accepted bool
SubscribeSandboxEventsRequest: 1 sandbox_id string, 2 from_sequence uint64, 3 include_current_snapshot bool
CreateExecRequest: 1 sandbox_id string, 2 command repeated string, 3 cwd string, 4 env_overrides map<string,string>, 5 exec_id string
CreateExecResponse: 1 exec_id string, 2 stdout_log_path string, 3 stderr_log_path string
CancelExecRequest: 1 exec_id string
GetExecRequest: 1 exec_id string
GetExecResponse: 1 exec ExecStatus
ListActiveExecsRequest: 1 sandbox_id optional string
ListActiveExecsResponse: 1 execs repeated ExecStatus
`

const wireEnums = `
SandboxState: SANDBOX_STATE_UNSPECIFIED 0, SANDBOX_STATE_PENDING 1, SANDBOX_STATE_READY 2, SANDBOX_STATE_FAILED 3, SANDBOX_STATE_STOPPED 4, SANDBOX_STATE_DELETING 5, SANDBOX_STATE_DELETED 6
ExecState: EXEC_STATE_UNSPECIFIED 0, EXEC_STATE_RUNNING 1, EXEC_STATE_FINISHED 2, EXEC_STATE_FAILED 3, EXEC_STATE_CANCELLED 4
EventType: EVENT_TYPE_UNSPECIFIED 0, SANDBOX_ACCEPTED 1, SANDBOX_PREPARING 2, SANDBOX_READY 3, SANDBOX_FAILED 4, SANDBOX_STOP_REQUESTED 5, SANDBOX_STOPPED 6, SANDBOX_DELETE_REQUESTED 7, SANDBOX_DELETED 8, EXEC_STARTED 9, EXEC_FINISHED 10, EXEC_FAILED 11, EXEC_CANCELLED 12, SANDBOX_SERVICE_READY 13, SANDBOX_SERVICE_FAILED 14
`

const wireMethods = `
Ping: PingRequest PingResponse
CreateSandbox: CreateSandboxRequest CreateSandboxResponse
GetSandbox: GetSandboxRequest GetSandboxResponse
ListSandboxes: ListSandboxesRequest ListSandboxesResponse
ResumeSandbox: ResumeSandboxRequest AcceptedResponse
StopSandbox: StopSandboxRequest AcceptedResponse
DeleteSandbox: DeleteSandboxRequest AcceptedResponse
DeleteSandboxes: DeleteSandboxesRequest DeleteSandboxesResponse
SubscribeSandboxEvents: SubscribeSandboxEventsRequest stream SandboxEvent
CreateExec: CreateExecRequest CreateExecResponse
CancelExec: CancelExecRequest AcceptedResponse
GetExec: GetExecRequest GetExecResponse
ListActiveExecs: ListActiveExecsRequest ListActiveExecsResponse
`

var (
	file = agboxv1.File_agbox_v1_sandbox_proto
	// Lists are split at commas that begin a new entry, not at the one inside map<string,string>.
	listComma = regexp.MustCompile(`, `)
)

func TestWireMessages(t *testing.T) {
	for name, want := range rows(t, wire, 31) {
		m := file.Messages().ByName(protoreflect.Name(name))
		if m == nil {
			t.Errorf("message %s is missing", name)
			continue
		}
		compare(t, name, fieldRows(m, 1, fromOurs), want)
	}
}

func TestWireEnums(t *testing.T) {
	for name, want := range rows(t, wireEnums, 3) {
		e := file.Enums().ByName(protoreflect.Name(name))
		if e == nil {
			t.Errorf("enum %s is missing", name)
			continue
		}
		compare(t, name, valueRows(e, 0, fromOurs), want)
	}
}

func TestWireMethods(t *testing.T) {
	service := file.Services().ByName("SandboxService")
	if service.FullName() != "agbox.v1.SandboxService" {
		t.Fatalf("service is %s", service.FullName())
	}
	for name, want := range rows(t, wireMethods, 13) {
		m := service.Methods().ByName(protoreflect.Name(name))
		if m == nil {
			t.Errorf("method %s is missing", name)
			continue
		}
		got := signature(m)
		if m.IsStreamingClient() || got != want[0] {
			t.Errorf("%s: got %s, want %s", name, got, want[0])
		}
	}
}

// TestTheOldClientIsTheTables holds the descriptor that the conformance suite plays an old client with to the tables, both
// ways round.
func TestTheOldClientIsTheTables(t *testing.T) {
	old, err := conformance.OldFile()
	if err != nil {
		t.Fatal(err)
	}
	messages := rows(t, wire, 31)
	if n := old.Messages().Len(); n != len(messages) {
		t.Errorf("it has %d messages, the tables %d", n, len(messages))
	}
	for name, want := range messages {
		m := old.Messages().ByName(protoreflect.Name(name))
		if m == nil {
			t.Errorf("message %s is missing", name)
			continue
		}
		compare(t, name, fieldRows(m, 1, fromOurs), want)
	}
	enums := rows(t, wireEnums, 3)
	if n := old.Enums().Len(); n != len(enums) {
		t.Errorf("it has %d enums, the tables %d", n, len(enums))
	}
	for name, want := range enums {
		compare(t, name, valueRows(old.Enums().ByName(protoreflect.Name(name)), 0, fromOurs), want)
	}
	methods := rows(t, wireMethods, 13)
	if old.Services().Len() != 1 || old.Services().Get(0).Methods().Len() != len(methods) {
		t.Errorf("it has %d services", old.Services().Len())
	}
	for name := range methods {
		if old.Services().Get(0).Methods().ByName(protoreflect.Name(name)) == nil {
			t.Errorf("method %s is missing", name)
		}
	}
}

func rows(t *testing.T, table string, count int) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		name, rest, _ := strings.Cut(line, ": ")
		out[name] = nil
		if rest != "-" {
			out[name] = listComma.Split(rest, -1)
		}
	}
	if len(out) < count {
		t.Fatalf("the table has %d rows, at least %d were typed", len(out), count)
	}
	return out
}

func compare(t *testing.T, name string, got, want []string) {
	t.Helper()
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("%s:\n got %s\nwant %s", name, strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

func typeName(f protoreflect.FieldDescriptor) string {
	if f.IsMap() {
		return fmt.Sprintf("map<%s,%s>", f.MapKey().Kind(), f.MapValue().Kind())
	}
	name := f.Kind().String()
	if f.Message() != nil {
		name = string(f.Message().Name())
	}
	if f.Enum() != nil {
		name = string(f.Enum().Name())
	}
	switch {
	case f.IsList():
		return "repeated " + name
	case f.HasOptionalKeyword():
		return "optional " + name
	case f.ContainingOneof() != nil:
		return "oneof " + string(f.ContainingOneof().Name()) + " " + name
	}
	return name
}
