#!/usr/bin/env bash
# Tests hack/engine.sh with an engine of its own: in network and mount namespaces of its own, below a temporary
# directory. Kills that engine in several ways and checks that the next start works and that a container survives.
# Needs root and dockerd; says so and succeeds without. The engine of the host is not touched.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [[ $(id -u) -ne 0 ]] || ! command -v dockerd >/dev/null; then
  echo "engine-test: skipped, it needs root and dockerd"
  exit 0
fi

dir=$(mktemp -d /tmp/agbox-engine-test.XXXXXX)
export ENGINE_SOCKET=$dir/s ENGINE_PIDFILE=$dir/pid ENGINE_DATA_ROOT=$dir/data ENGINE_EXEC_ROOT=$dir/exec
export ENGINE_LOG=$dir/log
export DOCKER_HOST=unix://$ENGINE_SOCKET
containerd_pidfile=$ENGINE_EXEC_ROOT/containerd/containerd.pid
strangers=()

fail() {
  echo "engine-test: FAILED: $*" >&2
  exit 1
}

# own_processes prints the pids of all that the private engine started, and the holder's: they share its namespaces.
own_processes() {
  local ns
  ns=$(readlink "/proc/$holder/ns/mnt" 2>/dev/null) || return 0
  for link in /proc/[0-9]*/ns/mnt; do
    if [[ $(readlink "$link" 2>/dev/null) == "$ns" ]]; then cut -d/ -f3 <<<"$link"; fi
  done
}

# kill_own kills all of them but the holder.
kill_own() {
  local pid
  for pid in $(own_processes); do
    [[ $pid == "$holder" ]] || kill -9 "$pid" 2>/dev/null || true # it may have ended meanwhile
  done
}

# cleanup ends the private engine, its containers and the namespaces, in this order, whatever happened.
cleanup() {
  docker rm -f survivor >/dev/null 2>&1 || true
  [[ -z ${first:-} ]] || kill -9 "$first" 2>/dev/null || true
  for _ in 1 2 3; do
    kill_own
    sleep 0.2 # a killed engine's children may just be starting
  done
  kill -9 "$holder" "${strangers[@]}" 2>/dev/null || true
  wait "$holder" "${strangers[@]}" 2>/dev/null || true
  rm -rf "$dir"
}

# The holder says that it is ready only when it is inside its namespaces. A private engine must never run in the host's
# network namespace, so this is checked once more from the outside.
# shellcheck disable=SC2016 # for the inner shell
setsid unshare --net --mount --propagation private sh -c 'echo >"$0/ready"; exec sleep infinity' "$dir" \
  </dev/null >/dev/null 2>&1 &
holder=$!
trap cleanup EXIT
for _ in $(seq 200); do
  [[ ! -e $dir/ready ]] || break
  sleep 0.05
done
for ns in net mnt; do
  theirs=$(readlink "/proc/$holder/ns/$ns")
  [[ -e $dir/ready && -n $theirs && $theirs != $(readlink "/proc/$$/ns/$ns") ]] || fail "no $ns namespace of its own"
done

inside() { nsenter --target "$holder" --net --mount "$@"; }
engine() { inside "$here/engine.sh"; }
step() { echo "--- $*"; }

# kill_pidfile kills the process that the file $1 names and waits until it is gone.
kill_pidfile() {
  local pid
  pid=$(cat "$1")
  kill -9 "$pid"
  for _ in $(seq 100); do
    [[ -e /proc/$pid && $(cut -d' ' -f3 "/proc/$pid/stat") != Z ]] || return 0
    sleep 0.05
  done
  fail "process $pid of $1 did not end"
}

# stranger starts a process of another name and sets pid.
stranger() {
  sleep infinity >/dev/null 2>&1 &
  pid=$!
  strangers+=("$pid")
}

# orphan_containerd starts a containerd like the one of the engine, without a parent that would take it along, waits
# until it serves, and sets pid.
orphan_containerd() {
  local dir=$ENGINE_EXEC_ROOT/containerd
  inside setsid containerd --config "$dir/containerd.toml" </dev/null >>"$ENGINE_LOG" 2>&1 &
  pid=$!
  strangers+=("$pid")
  echo -n "$pid" >"$containerd_pidfile"
  for _ in $(seq 100); do
    ! inside ctr --address "$dir/containerd.sock" version >/dev/null 2>&1 || return 0
    sleep 0.05
  done
  fail "containerd does not serve"
}

container_pid() { docker inspect --format '{{.State.Pid}}' survivor; }
expect_same_container() {
  [[ $(docker inspect --format '{{.State.Running}}' survivor) == true ]] || fail "the container does not run"
  [[ $(container_pid) == "$first" ]] || fail "the container was started again"
}

step "no engine: one is started, with live-restore"
engine
[[ $(docker info --format '{{.LiveRestoreEnabled}}') == true ]] || fail "no live-restore"
AGBOX_BASE_IMAGE=agbox-engine-test "$here/base-image.sh"
docker run -d --name survivor agbox-engine-test sleep 100000 >/dev/null
first=$(container_pid)

step "an engine that answers is used as it is"
before=$(cat "$ENGINE_PIDFILE")
engine
[[ $(cat "$ENGINE_PIDFILE") == "$before" ]] || fail "another engine runs"

step "dockerd killed: stale pid file"
kill_pidfile "$ENGINE_PIDFILE"
engine
expect_same_container

step "dockerd and containerd killed, their pids taken by strangers"
kill_pidfile "$ENGINE_PIDFILE"
old=$(cat "$containerd_pidfile" 2>/dev/null || true)
[[ -z $old ]] || kill -9 "$old" 2>/dev/null || true
stranger && echo -n "$pid" >"$ENGINE_PIDFILE"
stranger && echo -n "$pid" >"$containerd_pidfile"
engine
kill -0 "${strangers[@]}" || fail "a stranger was killed"
expect_same_container

step "dockerd killed, its containerd lives on"
kill_pidfile "$ENGINE_PIDFILE"
orphan_containerd
engine
expect_same_container

step "dockerd killed, its containerd half-dead"
kill_pidfile "$ENGINE_PIDFILE"
orphan_containerd
kill -STOP "$pid"
engine
expect_same_container

step "all killed, the container too"
kill_own
engine
for _ in $(seq 100); do # the engine answers before it has looked at every container
  [[ $(docker inspect --format '{{.State.Running}}' survivor) == true ]] || break
  sleep 0.05
done
[[ $(docker inspect --format '{{.State.Running}}' survivor) == false ]] || fail "a killed container runs"

step "two starts at once: one engine"
kill_pidfile "$ENGINE_PIDFILE"
engine & one=$!
engine & two=$!
wait $one || fail "the first start failed"
wait $two || fail "the second start failed"
count=0
for p in $(own_processes); do
  if grep -qsx dockerd "/proc/$p/comm"; then count=$((count + 1)); fi
done
[[ $count == 1 ]] || fail "$count engines run"

step "nothing of the caller is kept open"
held=$(for p in $(own_processes | grep -vx "$holder"); do readlink /proc/"$p"/fd/* 2>/dev/null || true; done)
if grep -E "pipe:\[$(readlink /proc/self/fd/1 | tr -dc 0-9)\]|agbox-lock" <<<"$held"; then fail "the engine holds it"; fi

echo "engine-test: ok"
