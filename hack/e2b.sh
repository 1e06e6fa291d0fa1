#!/usr/bin/env bash
# Installs the releases of E2B's SDK that hack/e2b/package.json names, with npm, and prints their directory. The newest one is looked up each time.
#
#   E2B_CACHE  bin/e2b, where they go: 60 MB
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

command -v npm >/dev/null || { echo "e2b: npm is missing: install Node.js 20 or newer with npm" >&2; exit 1; }
cache=${E2B_CACHE:-$here/../bin/e2b}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
cp -R "$here/e2b/." "$cache/"
npm install --prefix "$cache" --no-package-lock --no-audit --no-fund --loglevel=error >&2
echo "$cache"
