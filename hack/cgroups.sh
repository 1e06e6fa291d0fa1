#!/usr/bin/env bash
# Mounts the cgroup controllers below /sys/fs/cgroup if no cgroup file system is mounted at all, as an init system
# would. Without them dockerd does not start. Does nothing when any is mounted, whoever did it.
set -euo pipefail

if awk '$3 ~ /^cgroup2?$/ { found = 1 } END { exit !found }' /proc/mounts; then
  exit 0
fi
top=/sys/fs/cgroup

# controllers prints what the kernel offers as version 1 hierarchies.
controllers() { awk '!/^#/ && $4 == 1 { print $1 }' /proc/cgroups; }

if ! controllers | grep -qx memory; then
  echo "cgroups: mounting cgroup2 at $top"
  mount -t cgroup2 cgroup2 "$top"
  exit 0
fi
echo "cgroups: mounting the version 1 controllers below $top"
mount -t tmpfs -o mode=755 cgroup "$top"
controllers | while read -r name; do
  mkdir "$top/$name"
  if ! mount -n -t cgroup -o "$name" cgroup "$top/$name"; then
    echo "cgroups: no controller $name" >&2
    rmdir "$top/$name"
  fi
done
mkdir "$top/systemd"
mount -t cgroup -o none,name=systemd cgroup "$top/systemd" || rmdir "$top/systemd" # runc wants it where a systemd is
