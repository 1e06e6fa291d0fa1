#!/usr/bin/env bash
# Makes sure that what the tests call is there: a C compiler, since Go's race detector is linked with cgo; ip and
# nsenter for private engines; git for saved work trees and ignored files; mount, mkfs.ext4 and btrfs for small disks; protoc and Python with
# grpcio for a client in Python; systemd-analyze for the unit; tmux for terminals; ssh, and sshd below bin/. Installs Debian's
# packages when we are root; otherwise says what to do. With "rootless", what a rootless engine needs, too.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

packages=()
command -v "${CC:-gcc}" >/dev/null || packages+=(gcc libc6-dev)
command -v git >/dev/null || packages+=(git)
command -v curl >/dev/null || packages+=(curl)
command -v openssl >/dev/null || packages+=(openssl)
command -v ip >/dev/null || packages+=(iproute2)
command -v nsenter >/dev/null || packages+=(util-linux)
command -v mount >/dev/null || packages+=(mount)
command -v mkfs.ext4 >/dev/null || packages+=(e2fsprogs)
if ! command -v protoc >/dev/null || [[ ! -e /usr/include/google/protobuf/timestamp.proto ]] || ! command -v grpc_python_plugin >/dev/null || ! /usr/bin/python3 -c 'import grpc, google.protobuf' 2>/dev/null; then
  packages+=(protobuf-compiler libprotobuf-dev protobuf-compiler-grpc python3-grpcio python3-protobuf)
fi
command -v systemd-analyze >/dev/null || packages+=(systemd)
command -v mkfs.btrfs >/dev/null && command -v btrfs >/dev/null || packages+=(btrfs-progs)
command -v tmux >/dev/null || packages+=(tmux)
if [[ ${1-} == rootless ]] && ! type rootlesskit slirp4netns newuidmap setpriv &>/dev/null; then
  packages+=(rootlesskit slirp4netns uidmap util-linux)
fi
command -v ssh >/dev/null && command -v ssh-keygen >/dev/null || packages+=(openssh-client)

# sshd is unpacked, not installed: an installed one would listen on all addresses.
unpack_sshd() {
  local dir=$here/../bin/sshd tmp
  [[ -x /usr/sbin/sshd || -x $dir/usr/sbin/sshd ]] && return
  command -v apt-get >/dev/null || { echo "test-tools: install openssh-server" >&2; return 1; }
  tmp=$(mktemp -d)
  local download=(apt-get -q -o APT::Sandbox::User=root download openssh-server libwrap0)
  (cd "$tmp" && { "${download[@]}" || { apt-get -q update && "${download[@]}"; }; } </dev/null)
  for deb in "$tmp"/*.deb; do dpkg-deb -x "$deb" "$tmp/root"; done
  mv "$tmp"/root/usr/lib/*/libwrap.so.0* "$tmp/root/usr/lib/"
  mkdir -p "$(dirname "$dir")"
  rm -rf "$dir"
  mv "$tmp/root" "$dir"
  rm -r "$tmp"
  if LD_LIBRARY_PATH=$dir/usr/lib ldd "$dir/usr/sbin/sshd" | grep 'not found'; then
    echo "test-tools: the unpacked sshd lacks these libraries" >&2
    return 1
  fi
}

if [[ ${#packages[@]} -eq 0 ]]; then
  unpack_sshd
  exit
fi

if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
  echo "test-tools: install ${packages[*]}" >&2
  exit 1
fi
echo "test-tools: installing ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -q update </dev/null
apt-get -q install -y --no-install-recommends "${packages[@]}" </dev/null
unpack_sshd
