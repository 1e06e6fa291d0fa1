package agboxv1_test

import (
	"fmt"
	"strconv"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// What was added to the contract since, typed by hand as well: the fields of its messages and the values of its enums from
// 100 up, and messages of ours. Clients of ours exist too, so lines come to this, and none changes.
const wireAdded = `
PingResponse: 100 engine_problem string, 101 instance_id string, 180 gateways map<string,string>
ServiceSpec: 100 command repeated string, 101 user string, 102 working_dir string, 103 ports repeated PortSpec, 104 cpu_limit double, 105 memory_limit string, 107 pids_limit uint32, 110 restart_policy string, 111 pull_policy string, 150 volumes repeated VolumeSpec, 151 secrets repeated SecretSpec
CreateSpec: 100 command repeated string, 101 user string, 102 working_dir string, 103 ports repeated PortSpec, 104 cpu_limit double, 105 memory_limit string, 106 disk_limit string, 107 pids_limit uint32, 108 gpus string, 109 runtime string, 110 restart_policy string, 111 pull_policy string, 112 on_log_limit string, 113 security SecuritySpec, 114 entrypoint string, 130 timeout Duration, 131 on_timeout string, 132 auto_resume bool, 140 network NetworkSpec, 153 volumes repeated VolumeSpec, 154 secrets repeated SecretSpec, 180 gateway GatewaySpec, 181 keep_stopped bool, 182 default_user string
SandboxHandle: 100 name string, 101 status_message string, 102 spec CreateSpec, 103 desired_state string, 104 active_execs uint32, 105 services repeated ServiceStatus, 106 ports repeated PublishedPort, 107 restarts uint32, 108 stdout_log_path string, 109 stderr_log_path string, 110 deadline_at Timestamp, 111 timeout Duration, 112 on_timeout string, 113 demoted_at Timestamp, 114 rehydrated RehydratedDetails, 115 warnings repeated string, 116 default_memory_bytes int64, 129 security_profile string, 140 network_mode string, 158 channel string, 159 created_by string
SandboxPhaseDetails: 150 exit_code int32, 151 oom_killed bool, 152 end_message string
ExecEventDetails: 100 command repeated string
SandboxEvent: 100 image_pull oneof details ImagePullDetails, 101 spec_change oneof details SpecChangeDetails, 102 timeout_set oneof details TimeoutDetails, 103 rehydrated oneof details RehydratedDetails, 140 network_denied oneof details NetworkDeniedDetails
ExecStatus: 100 error_code string, 101 created_at Timestamp, 102 started_at Timestamp, 103 ended_at Timestamp, 104 stdout_log_path string, 105 stderr_log_path string, 106 oom_killed bool, 107 stdout_dropped_bytes int64, 108 stderr_dropped_bytes int64, 109 oom_kills int64, 150 user string, 151 timeout Duration, 152 stdin StdinSpec, 153 terminal bool, 155 stdin_deadline_at Timestamp
CreateExecRequest: 150 user string, 151 timeout Duration, 152 stdin StdinSpec, 153 terminal TerminalSpec, 154 live_output bool
CreateSandboxRequest: 100 name string, 101 dry_run bool, 102 replaces string
ListSandboxesRequest: 180 gateway_owner string, 181 gateway_template string, 182 gateway_metadata map<string,string>, 183 limit uint32, 184 oldest_first bool, 185 after_created_at Timestamp, 186 after_sandbox_id string
ResumeSandboxRequest: 100 recover bool
DeleteSandboxRequest: 100 keep_agents bool, 153 volumes bool
`

const wireOwn = `
SecuritySpec: 1 profile string, 2 read_only_root bool, 3 capabilities_add repeated string, 4 seccomp string, 5 no_new_privileges optional bool
NetworkSpec: 1 mode string, 2 allow repeated string, 3 deny repeated string, 4 verify_names bool
GatewaySpec: 1 owner string, 2 template string, 3 metadata map<string,string>, 180 private_traffic bool
SpecChangeDetails: 1 fields repeated string
StdinSpec: 1 when_gone string, 2 grace Duration
TerminalSpec: 1 columns uint32, 2 rows uint32
TimeoutDetails: 1 deadline_at Timestamp
RehydratedDetails: 1 defaulted repeated string, 2 rehydrated_at Timestamp, 3 state_changed_at Timestamp, 4 error_code string, 5 error_message string, 6 idle_since Timestamp, 7 preparing bool
ListExecsRequest: 1 sandbox_id string, 2 exec_id_prefix string, 3 page_token string
ListExecsResponse: 1 execs repeated ExecStatus, 2 next_page_token string
UpdateSandboxRequest: 1 sandbox_id string, 2 create_spec CreateSpec, 3 config_yaml bytes, 4 dry_run bool
UpdateSandboxResponse: 1 sandbox SandboxHandle, 2 changed_fields repeated string
PauseSandboxRequest: 1 sandbox_id string
SetSandboxTimeoutRequest: 1 sandbox_id string, 2 timeout oneof when Duration, 3 deadline_at oneof when Timestamp, 4 only_extend bool
SetSandboxTimeoutResponse: 1 deadline_at Timestamp, 2 changed bool
ExplainRequest: 1 sandbox_id string, 2 agent_id string
ExplainResponse: 1 desired string, 2 state SandboxState, 3 observed repeated string, 4 differences repeated string, 5 next_steps repeated string, 6 waiting string, 7 last_error string, 8 tries uint32, 9 retry_at Timestamp, 10 deadlines repeated ExplainDeadline, 11 engine_problem string, 12 engine_problem_since Timestamp, 13 agent_state string, 14 resume_steps repeated string, 15 resume_refusal string, 16 denied repeated string
ExplainDeadline: 1 kind string, 2 at Timestamp, 3 action string
ConfirmEngineResponse: 1 engine_id string, 2 given_up repeated string, 3 undecided repeated string
CollectGarbageRequest: 1 dry_run bool, 2 unknown bool
CollectGarbageResponse: 1 items repeated GarbageItem
DoctorResponse: 1 checks repeated DoctorCheck
ListAttackTargetsRequest: 1 sandbox_id string
ListAttackTargetsResponse: 1 targets repeated string
DoctorCheck: 1 name string, 2 status string, 3 text string
GarbageItem: 1 kind string, 2 id string, 3 name string, 4 sandbox_id string, 5 reason string, 6 unknown bool, 7 removed bool, 8 error string
GetServiceLogRequest: 1 sandbox_id string, 2 service_name string
GetServiceLogResponse: 1 log_path string, 2 problem string
VolumeSpec: 1 name string, 2 target string
SecretSpec: 1 name string, 2 file string, 3 target string, 4 inject repeated InjectRule
InjectRule: 1 host string, 2 header string
GetStatsRequest: 1 sandbox_ids repeated string
GetStatsResponse: 1 sandboxes repeated SandboxStats, 2 read_at Timestamp
SandboxStats: 1 sandbox_id string, 2 name string, 3 state SandboxState, 4 containers repeated ContainerStats
ContainerStats: 1 service_name string, 2 cpu_time Duration, 3 memory_bytes uint64, 4 memory_limit_bytes uint64, 5 pids uint64, 6 pids_limit uint64, 7 io_read_bytes uint64, 8 io_written_bytes uint64
NetworkDeniedDetails: 1 denials repeated NetworkDenial, 2 more uint32
NetworkDenial: 1 destination string, 2 count uint64
GetNetworkActivityRequest: 1 sandbox_id string
GetNetworkActivityResponse: 1 destinations repeated NetworkDestination, 2 problem string
NetworkDestination: 1 denied bool, 2 address string, 3 protocol string, 4 port uint32, 5 host bool, 6 names repeated string, 7 count uint64, 8 last_at Timestamp
ListVolumesRequest: 1 sandbox_name string
ListVolumesResponse: 1 volumes repeated Volume
Volume: 1 name string, 2 sandbox_name string, 3 engine_name string, 4 created_at Timestamp, 5 sandbox_id string
RemoveVolumeRequest: 1 sandbox_name string, 2 volume_name string
CreateSnapshotRequest: 1 sandbox_id string, 2 snapshot_id string
CreateSnapshotResponse: 1 snapshot Snapshot
ListSnapshotsRequest: 1 sandbox_id string, 2 gateway_owner string
ListSnapshotsResponse: 1 snapshots repeated Snapshot
Snapshot: 1 snapshot_id string, 2 sandbox_id string, 3 gateway_owner string, 4 image string, 5 created_at Timestamp, 6 size_bytes uint64
RemoveSnapshotRequest: 1 snapshot_id string
`

const wireAddedEnums = `
SandboxState: SANDBOX_STATE_PAUSED 100
EventType: SANDBOX_RESTARTED 100, IMAGE_PULLING 101, SANDBOX_PAUSED 102, SANDBOX_REHYDRATED 103, SANDBOX_SPEC_CHANGED 104, SANDBOX_TIMEOUT_SET 105, SANDBOX_PAUSE_REQUESTED 106, SANDBOX_RECOVERED 107, NETWORK_DENIED 108
`

const wireAddedMethods = `
SandboxService.ListExecs: ListExecsRequest ListExecsResponse
SandboxService.PauseSandbox: PauseSandboxRequest AcceptedResponse
SandboxService.SetSandboxTimeout: SetSandboxTimeoutRequest SetSandboxTimeoutResponse
SandboxService.UpdateSandbox: UpdateSandboxRequest UpdateSandboxResponse
SandboxService.GetServiceLog: GetServiceLogRequest GetServiceLogResponse
SandboxService.GetStats: GetStatsRequest GetStatsResponse
SandboxService.GetNetworkActivity: GetNetworkActivityRequest GetNetworkActivityResponse
SandboxService.ListVolumes: ListVolumesRequest ListVolumesResponse
SandboxService.RemoveVolume: RemoveVolumeRequest RemoveVolumeResponse
SandboxService.CreateSnapshot: CreateSnapshotRequest CreateSnapshotResponse
SandboxService.ListSnapshots: ListSnapshotsRequest ListSnapshotsResponse
SandboxService.RemoveSnapshot: RemoveSnapshotRequest RemoveSnapshotResponse
AdminService.ConfirmEngine: ConfirmEngineRequest ConfirmEngineResponse
AdminService.Backup: BackupRequest stream BackupChunk
AdminService.Explain: ExplainRequest ExplainResponse
AdminService.CollectGarbage: CollectGarbageRequest CollectGarbageResponse
AdminService.Drain: DrainRequest DrainResponse
AdminService.Undrain: UndrainRequest UndrainResponse
AdminService.GetDrainStatus: GetDrainStatusRequest GetDrainStatusResponse
AdminService.Doctor: DoctorRequest DoctorResponse
AdminService.ListAttackTargets: ListAttackTargetsRequest ListAttackTargetsResponse
`

const fromOurs, toTheEnd = 100, 1 << 30

func TestWhatWasAddedToTheWire(t *testing.T) {
	for name, want := range rows(t, wireAdded, 11) {
		compare(t, name, fieldRows(file.Messages().ByName(protoreflect.Name(name)), fromOurs, toTheEnd), want)
	}
	for name, want := range rows(t, wireOwn, 29) {
		m := file.Messages().ByName(protoreflect.Name(name))
		if m == nil {
			t.Errorf("message %s is missing", name)
			continue
		}
		compare(t, name, fieldRows(m, 1, toTheEnd), want)
	}
	for name, want := range rows(t, wireAddedEnums, 2) {
		compare(t, name, valueRows(file.Enums().ByName(protoreflect.Name(name)), fromOurs, toTheEnd), want)
	}
}

// TestMethodsThatWereAdded fails for a method of this file that neither this table nor that of the older contract has.
func TestMethodsThatWereAdded(t *testing.T) {
	want, older := rows(t, wireAddedMethods, 16), rows(t, wireMethods, 13)
	seen := 0
	for i := range file.Services().Len() {
		s := file.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			row := want[string(s.Name())+"."+string(m.Name())]
			if row == nil {
				if older[string(m.Name())] == nil {
					t.Errorf("method %s has no row in wireAddedMethods", m.FullName())
				}
				continue
			}
			seen++
			compare(t, string(m.FullName()), []string{signature(m)}, row)
		}
	}
	if seen != len(want) {
		t.Errorf("%d of %d methods are there", seen, len(want))
	}
}

// signature is a method as the tables have it.
func signature(m protoreflect.MethodDescriptor) string {
	stream := ""
	if m.IsStreamingServer() {
		stream = "stream "
	}
	return fmt.Sprintf("%s %s%s", m.Input().Name(), stream, m.Output().Name())
}

// fieldRows are the fields from one number up to another, without that, as the table has them.
func fieldRows(m protoreflect.MessageDescriptor, from, to protoreflect.FieldNumber) []string {
	var got []string
	for i := range m.Fields().Len() {
		if f := m.Fields().Get(i); f.Number() >= from && f.Number() < to {
			got = append(got, fmt.Sprintf("%d %s %s", f.Number(), f.Name(), typeName(f)))
		}
	}
	return got
}

// valueRows are the values from one number up to another, without that, as the table has them.
func valueRows(e protoreflect.EnumDescriptor, from, to protoreflect.EnumNumber) []string {
	var got []string
	for i := range e.Values().Len() {
		if v := e.Values().Get(i); v.Number() >= from && v.Number() < to {
			got = append(got, string(v.Name())+" "+strconv.Itoa(int(v.Number())))
		}
	}
	return got
}
