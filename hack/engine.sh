#!/usr/bin/env bash
# Makes sure that a Docker engine answers. One that answers is used as it is. Otherwise, as root on Debian, installs
# docker.io and starts "dockerd --live-restore" in the background; where systemd runs, it starts the engine.
# What an engine that was killed left behind (pid files, a stale socket, its containerd) does not stop the new one.
# Running containers are not touched.
#
# The paths can be set, so that a test can have an engine of its own (in a network namespace of its own: a second
# engine in the host's namespace would delete the bridge of the first):
#
#   ENGINE_SOCKET     /var/run/docker.sock          ENGINE_PIDFILE  /var/run/docker.pid
#   ENGINE_DATA_ROOT  /var/lib/docker               ENGINE_LOG      /var/log/agbox-dockerd.log
#   ENGINE_EXEC_ROOT  /var/run/docker               ENGINE_ARGS     more arguments for dockerd
#   ENGINE_WAIT       60, seconds to wait for the engine to answer
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

default_socket=/var/run/docker.sock
socket=${ENGINE_SOCKET:-$default_socket}
pidfile=${ENGINE_PIDFILE:-/var/run/docker.pid}
data_root=${ENGINE_DATA_ROOT:-/var/lib/docker}
exec_root=${ENGINE_EXEC_ROOT:-/var/run/docker}
log=${ENGINE_LOG:-/var/log/agbox-dockerd.log}
wait_seconds=${ENGINE_WAIT:-60}
host=unix://$socket
[[ -n ${ENGINE_SOCKET:-} ]] || host=${DOCKER_HOST:-$host}

say() { echo "engine: $*"; }
die() {
  echo "engine: $*" >&2
  exit 1
}

# ask runs a docker command against the engine; a hung engine counts as one that does not answer.
ask() { timeout 10 docker --host "$host" "$@" </dev/null 2>/dev/null; }

answers() { command -v docker >/dev/null && ask version --format '{{.Server.Version}}' >/dev/null; }

# describe says which engine answers, and what to know about it.
describe() {
  say "Docker $(ask version --format '{{.Server.Version}}') answers at $host"
  if [[ $(ask info --format '{{.LiveRestoreEnabled}}') == false ]]; then
    say "note: it runs without live-restore; its restart would take all containers with it"
  fi
}

has_systemd() { [[ -d /run/systemd/system && $socket == "$default_socket" ]]; }

# require_right ends with what to do when this user, or this host, is not one that we may set up.
require_right() {
  [[ $host == unix://* ]] || die "no engine answers at $host; start it, or unset DOCKER_HOST"
  if [[ $(id -u) -ne 0 ]]; then
    if [[ -S $socket && ! -w $socket ]]; then
      die "this user may not use $socket: add it to the group docker and log in again, or run as root"
    fi
    die "no engine answers at $host: start one (sudo systemctl start docker), or run: sudo hack/engine.sh"
  fi
}

# is_process tells whether $1 is the pid of a living process named $2. A zombie is dead: only its name is left.
is_process() {
  local name state
  [[ $1 =~ ^[0-9]+$ ]] || return 1
  name=$(sed -n 's/^Name:\t//p' "/proc/$1/status" 2>/dev/null) || return 1
  state=$(sed -n 's/^State:\t\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null) || return 1
  [[ $name == "$2" && $state != [ZX] ]]
}

# pid_in prints the pid that the file $1 holds.
pid_in() { tr -dc 0-9 2>/dev/null <"$1"; }

# drop_stale_pidfile removes our pid file if it names no living dockerd: the engine refuses to start when any process
# at all has that pid now.
drop_stale_pidfile() {
  [[ -f $pidfile ]] || return 0
  say "removing $pidfile: process $(pid_in "$pidfile") is not a living dockerd"
  rm -f "$pidfile"
}

# own_containerd prints the pids of the containerds that run on the engine's own configuration, whatever its pid file
# says.
own_containerd() {
  local config=${exec_root#/var}/containerd/containerd.toml dir # /var/run is /run
  for dir in /proc/[0-9]*; do
    if is_process "${dir#/proc/}" containerd && tr '\0' ' ' <"$dir/cmdline" 2>/dev/null | grep -qF "$config "; then
      echo "${dir#/proc/}"
    fi
  done
}

# end_orphan_containerd ends what is left of the containerd of an engine that was killed. dockerd would adopt it by its
# pid file, after removing its socket, and give up (seen with 20.10); with a pid that a stranger has now, it would kill
# the stranger. The containers do not notice: they belong to their shims.
end_orphan_containerd() {
  local pid parent
  for pid in $(own_containerd); do
    parent=$(sed -n 's/^PPid:\t//p' "/proc/$pid/status" 2>/dev/null || true)
    if is_process "$parent" dockerd; then
      die "dockerd (pid $parent) does not answer and its pid file $pidfile is gone: end it first"
    fi
    say "ending containerd (pid $pid), left behind by an engine that was killed"
    end_process "$pid" containerd
  done
  rm -f "$exec_root/containerd/containerd.pid"
}

# end_process ends process $1, named $2: politely, and after 5 s by force.
end_process() {
  local try
  kill -TERM "$1" 2>/dev/null || true
  for try in {1..70}; do
    is_process "$1" "$2" || return 0
    ((try != 50)) || kill -KILL "$1" 2>/dev/null || true
    sleep 0.1
  done
  die "$2 (pid $1) cannot be ended"
}

# drop_stale_system_containerd removes the socket of a system containerd without a server: dockerd takes the file
# alone as a sign that one runs, and waits for it until it gives up.
drop_stale_system_containerd() {
  local sock=/run/containerd/containerd.sock
  [[ -S $sock ]] || return 0
  if ! timeout 5 ctr --address "$sock" version >/dev/null 2>&1 && ! grep -qsx containerd /proc/[0-9]*/comm; then
    say "removing $sock: no containerd serves it"
    rm -f "$sock"
  fi
}

# running_dockerd tells whether our pid file names a living dockerd, be it that it is still starting.
running_dockerd() { [[ -f $pidfile ]] && is_process "$(pid_in "$pidfile")" dockerd; }

# start_dockerd starts the engine in a session of its own, with nothing of ours open: it outlives us and holds no caller's
# pipe or lock.
start_dockerd() {
  local args=() # only what is asked for: dockerd refuses a setting that is also in /etc/docker/daemon.json
  grep -qs '"live-restore"' /etc/docker/daemon.json || args+=(--live-restore)
  [[ -z ${ENGINE_SOCKET:-} ]] || args+=(--host "unix://$socket")
  [[ -z ${ENGINE_PIDFILE:-} ]] || args+=(--pidfile "$pidfile")
  [[ -z ${ENGINE_DATA_ROOT:-} ]] || args+=(--data-root "$data_root")
  [[ -z ${ENGINE_EXEC_ROOT:-} ]] || args+=(--exec-root "$exec_root")
  mkdir -p "$data_root" "$exec_root" "$(dirname "$log")"
  say "starting dockerd (log: $log)"
  (
    for fd in /proc/self/fd/*; do
      fd=${fd##*/}
      ((fd <= 2)) || eval "exec $fd>&-"
    done
    # shellcheck disable=SC2086 # ENGINE_ARGS holds several words
    # Engine and runc keep files below these; they may be the caller's, and go with it.
    unset XDG_RUNTIME_DIR XDG_DATA_HOME XDG_CONFIG_HOME TMPDIR
    exec setsid dockerd "${args[@]}" ${ENGINE_ARGS:-} </dev/null >>"$log" 2>&1
  ) &
  dockerd_pid=$!
}

# give_up shows the end of the log and ends.
give_up() {
  tail -n 20 "$log" >&2 2>/dev/null || true
  die "$1; log: $log"
}

# wait_for_answer returns when the engine answers; $1 is the dockerd that must live meanwhile, if it is ours.
wait_for_answer() {
  local begin=$SECONDS next=5
  until answers; do
    if [[ -n $1 ]] && ! kill -0 "$1" 2>/dev/null; then
      give_up "dockerd ended before it answered"
    fi
    ((SECONDS - begin < wait_seconds)) || give_up "no answer at $host within $wait_seconds s"
    if ((SECONDS - begin >= next)); then
      say "waiting for the engine ($((SECONDS - begin)) s)"
      next=$((next + 5))
    fi
    sleep 0.2
  done
}

# start brings an engine up by the means of this machine.
start() {
  local dockerd_pid=
  if has_systemd; then
    say "starting the engine with systemd"
    timeout "$wait_seconds" systemctl start docker || die "systemctl start docker: see journalctl -u docker"
  elif running_dockerd; then
    say "dockerd runs already (pid $(pid_in "$pidfile")) but does not answer yet"
  else
    "$here/cgroups.sh"
    drop_stale_pidfile
    end_orphan_containerd
    drop_stale_system_containerd
    start_dockerd
  fi
  wait_for_answer "$dockerd_pid"
}

if answers; then
  describe
  exit 0
fi
require_right
exec 9>"$pidfile.agbox-lock"
flock -w 300 9 || die "another hack/engine.sh has been at work for 300 s"
if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null || ! command -v iptables >/dev/null; then
  "$here/install-docker.sh"
fi
answers || start
describe
