"""A client of the older contract, on stubs that protoc and grpcio made: it declares nothing, raises on an enum value that it does not
know, and waits as such clients do. usage: older.py SOCKET IMAGE PAUSED_ID

It prints the ID of the exec that it waits for, so that somebody else can act meanwhile, and at the end "ok".
"""
import enum
import sys

import grpc

from agbox.v1 import sandbox_pb2 as pb
from agbox.v1 import sandbox_pb2_grpc

FIRST_ADDITION = 100  # what has a larger number is newer than this client


def older(name, kind):
    return enum.IntEnum(name, {k: v for k, v in kind.items() if v < FIRST_ADDITION})


State = older("State", pb.SandboxState)
ExecState = older("ExecState", pb.ExecState)
EventType = older("EventType", pb.EventType)

socket, image, paused = sys.argv[1:]
api = sandbox_pb2_grpc.SandboxServiceStub(grpc.insecure_channel("unix:" + socket))
TIMEOUT = 90


def get(sandbox_id):
    return api.GetSandbox(pb.GetSandboxRequest(sandbox_id=sandbox_id), timeout=TIMEOUT).sandbox


def events(sandbox_id, from_sequence):
    request = pb.SubscribeSandboxEventsRequest(sandbox_id=sandbox_id, from_sequence=from_sequence)
    for event in api.SubscribeSandboxEvents(request, timeout=TIMEOUT):
        EventType(event.event_type)
        State(event.sandbox_state)
        assert event.sequence > from_sequence, event
        from_sequence = event.sequence
        yield event


def wait(sandbox_id, want):
    sandbox = get(sandbox_id)
    stream = events(sandbox_id, sandbox.last_event_sequence)
    while State(sandbox.state) != want:
        assert sandbox.state != State.SANDBOX_STATE_FAILED, sandbox
        next(stream)
        sandbox = get(sandbox_id)


def listed(sandbox_id):
    sandboxes = api.ListSandboxes(pb.ListSandboxesRequest(), timeout=TIMEOUT).sandboxes
    return {s.sandbox_id: State(s.state) for s in sandboxes}[sandbox_id]


assert api.Ping(pb.PingRequest(), timeout=TIMEOUT).daemon == "agboxd"
assert listed(paused) == State.SANDBOX_STATE_STOPPED

yaml = "image: %s\nenvs: {PORT: 8080, DEBUG: true}\nlabels: {'made by: python': 1}\n" % image
box = api.CreateSandbox(pb.CreateSandboxRequest(config_yaml=yaml.encode()), timeout=TIMEOUT).sandbox.sandbox_id
wait(box, State.SANDBOX_STATE_READY)  # over the events of a pull

command = ["sh", "-c", "until [ -e /workspace/go ]; do sleep 0.1; done; echo $PORT $DEBUG"]
run = api.CreateExec(pb.CreateExecRequest(sandbox_id=box, command=command), timeout=TIMEOUT)
print(box, run.exec_id, flush=True)
ended = api.GetExec(pb.GetExecRequest(exec_id=run.exec_id), timeout=TIMEOUT).exec
stream = events(box, ended.last_event_sequence)
while ExecState(ended.state) == ExecState.EXEC_STATE_RUNNING:
    next(stream)
    ended = api.GetExec(pb.GetExecRequest(exec_id=run.exec_id), timeout=TIMEOUT).exec
assert ended.state == ExecState.EXEC_STATE_FINISHED, ended
with open(run.stdout_log_path) as log:
    assert log.read() == "8080 true\n"

api.StopSandbox(pb.StopSandboxRequest(sandbox_id=box), timeout=TIMEOUT)
wait(box, State.SANDBOX_STATE_STOPPED)
assert listed(box) == State.SANDBOX_STATE_STOPPED
api.DeleteSandbox(pb.DeleteSandboxRequest(sandbox_id=box), timeout=TIMEOUT)
wait(box, State.SANDBOX_STATE_DELETED)

names, sequences = [], []
for event in events(box, 0):
    sequences.append(event.sequence)
    if event.exec.exec_id in ("", run.exec_id):
        names.append(EventType(event.event_type).name)
    if event.event_type == EventType.SANDBOX_DELETED:
        break
assert names == [
    "SANDBOX_ACCEPTED", "SANDBOX_PREPARING", "SANDBOX_READY", "EXEC_STARTED", "EXEC_FINISHED",
    "SANDBOX_STOP_REQUESTED", "SANDBOX_STOPPED", "SANDBOX_DELETE_REQUESTED", "SANDBOX_DELETED",
], names
assert sequences[-1] > len(sequences), sequences  # the pull and the timeout used some

api.ResumeSandbox(pb.ResumeSandboxRequest(sandbox_id=paused), timeout=TIMEOUT)
wait(paused, State.SANDBOX_STATE_READY)
try:
    api.ResumeSandbox(pb.ResumeSandboxRequest(sandbox_id=paused), timeout=TIMEOUT)
    raise AssertionError("the resume of a READY sandbox was accepted")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
    assert error.details() == "sandbox %s is not stopped" % paused, error.details()
print("ok", flush=True)
