#!/usr/bin/env bash
# Generates the Go code of the protos into a temporary directory and fails when it differs from what is in the tree.
# usage: proto-generated.sh BUF
set -euo pipefail
cd "$(dirname "$0")/.."
buf=$1

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
"$buf" generate --output "$new"

# list prints the generated files below a directory, so that one left over from a removed proto is found too.
list() { (cd "$1" && find apis -name '*.pb.go' | sort); }

if ! diff -u <(list .) <(list "$new"); then
  echo "proto-generated: generated files are missing or left over; run: make generate" >&2
  exit 1
fi
list "$new" | while read -r file; do
  diff -u "$file" "$new/$file" || {
    echo "proto-generated: $file is out of date; run: make generate" >&2
    exit 1
  }
done
echo "proto-generated: up to date"
