#!/usr/bin/env bash
# Runs every fuzz target of the module, each for a time (10s) or a number of inputs (2000x): fuzz.sh TIME. A finding is
# written into testdata/fuzz of its package, where every later run of the tests tries it.
set -euo pipefail
cd "$(dirname "$0")/.."
time=$1

# go test -list compiles what it lists, so only packages that have targets are asked.
mapfile -t packages < <(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u)
[[ ${#packages[@]} -gt 0 ]] || { echo 'no package has fuzz targets' >&2; exit 1; }
for package in "${packages[@]}"; do
  for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz'); do
    echo "$package $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 100x "$package" # minimizing takes a minute for each input otherwise
  done
done
