#!/usr/bin/env bash
# Builds a current Docker engine from Go modules and runs it beside the one of this machine, in a network namespace of its
# own and with files of its own. For root on Debian; installs gcc, pkg-config, libseccomp-dev and the docker command if they are
# missing.
#
#   build      build into the cache, unless it is there
#   start      build, and start the engine unless it answers
#   run CMD    start, and run CMD in the engine's network namespace with DOCKER_HOST and PATH set, so that ports that the engine
#              publishes on 127.0.0.1 are reached, and private engines that tests start are of the same version
#   stop       end the engine and all its containers, and remove all but the cache
#
#   ENGINE_LATEST_CACHE  bin/engine-latest, where the programs go
#   ENGINE_LATEST_ROOT   /var/tmp/agbox-latest, the engine's files; short, for there are sockets in it
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

moby=v2.0.0-beta.24
containerd=v2.4.2
runc=v1.5.2

cache=${ENGINE_LATEST_CACHE:-$here/../bin/engine-latest}
root=${ENGINE_LATEST_ROOT:-/var/tmp/agbox-latest}
netns=agbox-latest
stamp=moby-$moby-containerd-$containerd-runc-$runc
host=unix://$root/docker.sock

say() { echo "engine-latest: $*" >&2; }
die() {
  say "$*"
  exit 1
}

# tools installs what the build and the engine need and the machine lacks.
tools() {
  local packages=()
  command -v gcc >/dev/null || packages+=(gcc libc6-dev)
  command -v ip >/dev/null || packages+=(iproute2)
  pkg-config --exists libseccomp 2>/dev/null || packages+=(libseccomp-dev pkg-config)
  if [[ ${#packages[@]} -gt 0 ]]; then
    [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null || die "install ${packages[*]}"
    say "installing ${packages[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 update </dev/null >&2
    DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "${packages[@]}" </dev/null >&2
  fi
  # Of Debian's packages: the command, docker-init and iptables.
  command -v docker >/dev/null && command -v docker-init >/dev/null && command -v iptables >/dev/null || "$here/install-docker.sh" >&2
}

# build makes the programs. A second build waits for the first.
build() {
  [[ ! -e $cache/$stamp ]] || return 0
  mkdir -p "$cache"
  cache=$(realpath -m "$cache")
  (
    flock 8
    [[ ! -e $cache/$stamp ]] || exit 0
    tools
    compile
    touch "$cache/$stamp"
  ) 8>"$cache/.lock"
}

# compile builds each module with the versions that its own go.mod names.
compile() {
  say "building $stamp; this takes about five minutes of two processors"
  local version=github.com/moby/moby/v2/dockerversion
  local flags=(-trimpath -ldflags "-s -w -X $version.Version=${moby#v} -X $version.GitCommit=module")
  cd / # no go.mod of ours
  export GOBIN=$cache GOFLAGS=-buildvcs=false
  CGO_ENABLED=0 nice go install "${flags[@]}" "github.com/moby/moby/v2/cmd/dockerd@$moby" "github.com/moby/moby/v2/cmd/docker-proxy@$moby"
  CGO_ENABLED=0 nice go install "${flags[@]}" "github.com/containerd/containerd/v2/cmd/containerd@$containerd" \
    "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@$containerd"
  CGO_ENABLED=1 nice go install -tags seccomp "${flags[@]}" "github.com/opencontainers/runc@$runc"
}

# environment has everything that is run find the programs of the cache and the engine.
environment() {
  cache=$(realpath -m "$cache")
  export PATH=$cache:$PATH DOCKER_HOST=$host
  unset XDG_RUNTIME_DIR XDG_DATA_HOME XDG_CONFIG_HOME
}

answers() { timeout 10 docker --host "$host" version --format '{{.Server.Version}}' >/dev/null 2>&1 </dev/null; }

start() {
  build
  environment
  answers && return 0
  [[ $(id -u) -eq 0 ]] || die "only root can start an engine"
  "$here/cgroups.sh" >&2
  mkdir -p "$root"
  [[ -e /run/netns/$netns ]] || ip netns add "$netns"
  ip -n "$netns" link set lo up
  local before
  before=$(cat "$root/docker.pid" 2>/dev/null || true)
  [[ -z $before ]] || end "$before" dockerd
  rm -f "$root/docker.pid"
  # Of a session of its own, and with nothing of ours open: it outlives us.
  setsid nsenter "--net=/run/netns/$netns" dockerd --data-root "$root/data" --exec-root "$root/exec" --pidfile "$root/docker.pid" \
    --host "$host" --live-restore --cgroup-parent "/$netns" </dev/null >>"$root/log" 2>&1 9>&- &
  for _ in {1..300}; do
    ! answers || return 0
    sleep 0.2
  done
  tail -n 20 "$root/log" >&2
  die "no answer at $host; log: $root/log"
}

# end ends process $1 if its name begins with $2; the kernel cuts names at 15 characters.
end() {
  [[ $(cat "/proc/$1/comm" 2>/dev/null) == "$2"* ]] || return 0
  kill -TERM "$1"
  for _ in {1..100}; do
    [[ -d /proc/$1 ]] || return 0
    sleep 0.1
  done
  kill -KILL "$1" || true
}

# shims prints the processes that hold this engine's containers.
shims() {
  local dir
  for dir in /proc/[0-9]*; do
    [[ $(cat "$dir/comm" 2>/dev/null) == containerd-shim* ]] || continue
    [[ $(tr '\0' ' ' <"$dir/cmdline" 2>/dev/null) != *" -address $root/exec/"* ]] || echo "${dir#/proc/}"
  done
}

stop() {
  environment
  if answers; then
    docker --host "$host" ps -aq | xargs -r docker --host "$host" rm -fv >/dev/null
  fi
  local pid
  pid=$(cat "$root/docker.pid" 2>/dev/null || true)
  [[ -z $pid ]] || end "$pid" dockerd
  pid=$(cat "$root/exec/containerd/containerd.pid" 2>/dev/null || true)
  [[ -z $pid ]] || end "$pid" containerd
  # Containers outlive an engine that did not answer.
  for pid in $(shims); do end "$pid" containerd-shim; done
  for pid in $(cat /sys/fs/cgroup/{,*/}"$netns"/*/cgroup.procs 2>/dev/null | sort -u); do kill -KILL "$pid" || true; done
  awk -v dir="$root/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts | sort -r | xargs -r -n1 umount -l
  [[ ! -e /run/netns/$netns ]] || ip netns del "$netns"
  rm -rf "$root"
}

case ${1:-} in
build) build ;;
start)
  start
  say "Docker $(docker --host "$host" version --format '{{.Server.Version}}, API {{.Server.APIVersion}}') answers at $host, in network namespace $netns"
  ;;
run)
  start
  exec nsenter "--net=/run/netns/$netns" "${@:2}" # ip netns exec would hide the control groups
  ;;
stop) stop ;;
*) die "usage: $0 build | start | run CMD... | stop" ;;
esac
