#!/usr/bin/env bash
# Compares the protos of this tree with those of main and fails on a change that would break a client or a stored
# record. On main itself the last commit is the base, so that a change is compared with what was there before it.
# usage: proto-breaking.sh BUF
set -euo pipefail
cd "$(dirname "$0")/.."
buf=$1

# base_commit prints the commit to compare with; nothing when there is none (no git, no main, a root commit).
base_commit() {
  local main head
  head=$(git rev-parse -q --verify HEAD 2>/dev/null) || return 0
  main=$(git rev-parse -q --verify origin/main || git rev-parse -q --verify main) || return 0
  if [[ $main == "$head" ]]; then
    git rev-parse -q --verify "$main~1" || true
    return 0
  fi
  git merge-base "$main" "$head" || true # a shallow clone may not hold it
}

base=$(base_commit)
if [[ -z $base ]] || ! git cat-file -e "$base:buf.yaml" 2>/dev/null; then
  echo "proto-breaking: no earlier protos to compare with"
  exit 0
fi
old=$(mktemp -d)
trap 'rm -rf "$old"' EXIT
git archive "$base" buf.yaml apis | tar -x -C "$old"
"$buf" breaking --against "$old"
echo "proto-breaking: compatible with ${base:0:12}"
