#!/usr/bin/env bash
# Plants each bug of controller/testdata/bugs in a copy of the tree and runs the simulation there, which must fail. A patch
# that does not apply or does not compile fails too: it plants nothing any more, and must be made again.
#
#   SIM_BUG_STEPS  600000, the steps within which each bug must be found
#   arguments      names of the bugs to plant; none: all
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

steps=${SIM_BUG_STEPS:-600000}
bugs=$PWD/controller/testdata/bugs
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy" 2>/dev/null || true # what was deleted is not there
cd "$copy"

# seed prints where the simulation starts for a bug: a line "Seed: N" above the patch, or 1.
seed() {
  sed -n '/^diff/q; s/^Seed: //p' "$bugs/$1.patch" | grep . || echo 1
}

# plant runs the simulation with the bug named $1 and prints what came of it.
plant() {
  local name=$1 patch=$bugs/$1.patch out
  if ! patch --batch --silent -p1 <"$patch" >/dev/null; then
    echo "$name: the patch does not apply"
    return 1
  fi
  if ! out=$(go test -c -o sim.test ./controller 2>&1); then
    echo "$name: it does not compile: $out"
    return 1
  fi
  if (cd controller && ../sim.test -test.run 'TestSim$' -test.timeout 10m -sim.steps "$steps" -sim.seed "$(seed "$1")") >sim.log 2>&1; then
    echo "$name: NOT FOUND in $steps steps"
    return 1
  fi
  if ! grep -m1 -o 'seed [0-9]*, step [0-9]* of this episode, [0-9]* of all: .*' sim.log | cut -c1-160 | sed "s/^/$name: /"; then
    echo "$name: the simulation died of it: $(grep -m1 -E 'panic|deadlock|fatal' sim.log || tail -n 1 sim.log)"
  fi
}

failed=()
for patch in "$bugs"/*.patch; do
  name=$(basename "$patch" .patch)
  if (($# > 0)) && [[ " $* " != *" $name "* ]]; then
    continue
  fi
  plant "$name" || failed+=("$name")
  sed -n 's|^+++ b/||p' "$patch" | while read -r file; do
    rm -f "$file.orig" "$file.rej"
    cp "$OLDPWD/$file" "$file"
  done
done
if ((${#failed[@]} > 0)); then
  echo "not as expected: ${failed[*]}" >&2
  exit 1
fi
