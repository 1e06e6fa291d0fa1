#!/usr/bin/env bash
# Installs the agent programs of hack/agents/package.json with npm, unless they are in the cache, and prints their directory.
#
#   AGENTS_CACHE  bin/agents, where they go: 800 MB
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

command -v npm >/dev/null || { echo "agents: npm is missing: install Node.js 20 or newer with npm" >&2; exit 1; }
cache=${AGENTS_CACHE:-$here/../bin/agents}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
if ! cmp -s "$here/agents/package.json" "$cache/installed.json"; then
  echo "agents: installing the agent programs; this takes about a minute" >&2
  rm -rf "$cache/node_modules" "$cache/installed.json"
  cp "$here/agents/package.json" "$cache/package.json"
  npm install --prefix "$cache" --no-package-lock --no-audit --no-fund --loglevel=error >&2
  cp "$cache/package.json" "$cache/installed.json"
fi
echo "$cache"
