#!/usr/bin/env bash
# Build agboxd, agbox and agbox-shim of COMMIT into DIR, without a change of this checkout: upgrade-bin.sh COMMIT DIR
# Exit code 3: the history of this checkout does not have the commit.
set -euo pipefail
cd "$(dirname "$0")/.."
commit=${1:?which commit} dir=$(realpath -m "${2:?which directory}")

if ! git cat-file -e "$commit^{commit}"; then
  echo "commit $commit is not in the history of this checkout (git fetch --unshallow has it)" >&2
  exit 3
fi
src=$(mktemp -d)
trap 'rm -rf "$src"' EXIT
git archive "$commit" | tar -x -C "$src"
mkdir -p "$dir"
cd "$src"
# The same flags as make build, so that packages which both versions have alike are in Go's cache.
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${commit:0:7}" -o "$dir/" ./cmd/agboxd ./cmd/agbox ./cmd/agbox-shim
