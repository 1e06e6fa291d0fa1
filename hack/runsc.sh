#!/usr/bin/env bash
# Builds gVisor's runtime runsc from its Go module, unless it is in the cache, and prints its path.
#
#   RUNSC_CACHE  bin/runsc, where the program goes
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

version=v0.0.0-20260905035102-160fafc42237

cache=${RUNSC_CACHE:-$here/../bin/runsc}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
if [[ ! -e $cache/$version ]]; then
  echo "runsc: building gvisor.dev/gvisor/runsc@$version; this takes about two minutes of two processors" >&2
  cd / # no go.mod of ours
  GOBIN=$cache GOFLAGS=-buildvcs=false CGO_ENABLED=0 nice go install -trimpath -ldflags '-s -w' "gvisor.dev/gvisor/runsc@$version"
  touch "$cache/$version"
fi
echo "$cache/runsc"
