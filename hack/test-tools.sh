#!/usr/bin/env bash
# Makes sure that what the tests call is there: a C compiler, since Go's race detector is linked with cgo; ip and
# nsenter for private engines; git for saved work trees and ignored files; mount, mkfs.ext4 and btrfs for small disks; protoc and Python with
# grpcio for a client in Python; systemd-analyze for the unit. Installs Debian's
# packages when we are root; otherwise says what to do.
set -euo pipefail

packages=()
command -v "${CC:-gcc}" >/dev/null || packages+=(gcc libc6-dev)
command -v git >/dev/null || packages+=(git)
command -v ip >/dev/null || packages+=(iproute2)
command -v nsenter >/dev/null || packages+=(util-linux)
command -v mount >/dev/null || packages+=(mount)
command -v mkfs.ext4 >/dev/null || packages+=(e2fsprogs)
if ! command -v protoc >/dev/null || [[ ! -e /usr/include/google/protobuf/timestamp.proto ]] || ! command -v grpc_python_plugin >/dev/null || ! /usr/bin/python3 -c 'import grpc, google.protobuf' 2>/dev/null; then
  packages+=(protobuf-compiler libprotobuf-dev protobuf-compiler-grpc python3-grpcio python3-protobuf)
fi
command -v systemd-analyze >/dev/null || packages+=(systemd)
command -v mkfs.btrfs >/dev/null && command -v btrfs >/dev/null || packages+=(btrfs-progs)
[[ ${#packages[@]} -gt 0 ]] || exit 0

if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
  echo "test-tools: install ${packages[*]}" >&2
  exit 1
fi
echo "test-tools: installing ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -q update </dev/null
apt-get -q install -y --no-install-recommends "${packages[@]}" </dev/null
