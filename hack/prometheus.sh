#!/usr/bin/env bash
# Unpacks prometheus and promtool of Debian's package, unless they are in the cache, and prints their directory. The package is not
# installed: its dependencies are for its web pages, and it would start a service.
#
#   PROMETHEUS_CACHE  bin/prometheus, where they go: 100 MB
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

cache=${PROMETHEUS_CACHE:-$here/../bin/prometheus}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
if [[ ! -x $cache/prometheus || ! -x $cache/promtool ]]; then
  command -v apt-get >/dev/null || { echo "prometheus: apt-get is missing: put prometheus and promtool into $cache" >&2; exit 1; }
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  echo "prometheus: downloading Debian's package" >&2
  cd "$tmp"
  download() { apt-get -q -o APT::Sandbox::User=root download prometheus >&2; } # apt's own user may not write here
  download || { apt-get -q update >&2 && download; }
  dpkg -x prometheus_*.deb root
  mv root/usr/bin/promtool root/usr/bin/prometheus "$cache/"
fi
echo "$cache"
