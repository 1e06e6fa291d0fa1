#!/usr/bin/env bash
# Makes sure that a C compiler is there: Go's race detector is linked with cgo.
# Installs Debian's gcc when it is missing and we are root; otherwise says what to do.
set -euo pipefail

if command -v "${CC:-gcc}" >/dev/null; then
  exit 0
fi
if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
  echo "compiler: no C compiler found and go test -race needs one: install gcc and libc6-dev" >&2
  exit 1
fi
echo "compiler: installing gcc and libc6-dev (go test -race needs them)"
export DEBIAN_FRONTEND=noninteractive
apt-get -q update </dev/null
apt-get -q install -y --no-install-recommends gcc libc6-dev </dev/null
