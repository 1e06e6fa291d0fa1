#!/usr/bin/env bash
# Installs Debian's Docker engine, its command line, iptables and the static busybox, as root.
# The package's own start of the engine is held back unless systemd runs: hack/engine.sh starts it with live-restore.
set -euo pipefail

if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
  echo "install-docker: needs root and apt-get; install a Docker engine (20.10 or newer) and its command line" >&2
  exit 1
fi

# hold_services keeps package scripts from starting services, until this script ends.
hold_services() {
  local policy=/usr/sbin/policy-rc.d
  if [[ -d /run/systemd/system || -e $policy ]]; then
    return 0
  fi
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
}

# apt_get runs apt-get without questions; a lock that another apt-get holds is waited for.
apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 "$@" </dev/null; }

hold_services
echo "install-docker: installing docker.io, iptables, busybox-static"
apt_get update
packages=(docker.io iptables busybox-static)
[[ -e /etc/ssl/certs/ca-certificates.crt ]] || packages+=(ca-certificates) # for pulls
if apt-cache show docker-cli >/dev/null 2>&1; then
  packages+=(docker-cli) # a package of its own since Debian 13
fi
apt_get install -y --no-install-recommends "${packages[@]}"
