#!/usr/bin/env bash
# Plants bugs in a copy of the tree and runs the storm there, which must report a violation that names the bug's effect. A patch that
# does not apply fails too: update it.
#
#   DURATION   60s, of each storm
#   SEED       1, of each storm
#   arguments  names of the bugs to plant; none: all
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Each bug: its patch, and the violation that the storm must report.
bugs=(
  "controller/testdata/bugs/single-look.patch|SANDBOX_FAILED, has no fault that explains it: CONTAINER_MISSING"
  "hack/storm/testdata/bugs/fails-together.patch|SANDBOX_FAILED, has no fault that explains it: CONTAINER_MISSING"
)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
chmod 755 "$copy" # programs in it are mounted into sandboxes

git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy" 2>/dev/null || true # deleted files are still in the index
mkdir "$copy/tmp"
cd "$copy"

# plant runs a storm with the bug of the patch $1 and prints the violation $2.
plant() {
  local name
  name=$(basename "$1" .patch)
  if ! patch --batch --silent -p1 <"$1" >/dev/null; then
    echo "$name: the patch does not apply"
    return 1
  fi
  TMPDIR=$copy/tmp go run -buildvcs=false ./hack/storm -duration "${DURATION:-60s}" -seed "${SEED:-1}" -faults kill,proxy >storm.log 2>&1 || true
  patch --batch --silent -R -p1 <"$1" >/dev/null
  if ! grep -m1 "^VIOLATION.*$2" storm.log | cut -c1-200 | sed "s/^/$name: /"; then
    echo "$name: NOT FOUND; the storm said: $(tail -n 3 storm.log)"
    return 1
  fi
}

failed=()
for bug in "${bugs[@]}"; do
  patch=${bug%%|*}
  name=$(basename "$patch" .patch)
  if (($# > 0)) && [[ " $* " != *" $name "* ]]; then
    continue
  fi
  plant "$patch" "${bug#*|}" || failed+=("$name")
done
if ((${#failed[@]} > 0)); then
  echo "not as expected: ${failed[*]}" >&2
  exit 1
fi
