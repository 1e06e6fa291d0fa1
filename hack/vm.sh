#!/usr/bin/env bash
# Runs a script in a virtual machine of Debian 13: another kernel, cgroup v2 alone, systemd as PID 1, Docker 26, disks that
# can lose power. Needs root, Debian's mirror, qemu-system-x86, mmdebstrap and e2fsprogs, the first two of which it installs.
# There is no network in the machine but its loopback and Docker's bridges.
#
#   build      make the machine's disk in the cache, unless it is there: three minutes
#   run DIR    boot, and run DIR/run.sh as root with a copy of DIR as /data, the working directory; its output is ours, and so is its
#              exit code. What it leaves in /data/out is in DIR/out then. The machine's own disk is as new for each run.
#
#   VM_CACHE    bin/vm, where the disk is kept, and console.log of the last run
#   VM_MEMORY   memory, 3G
#   VM_TIMEOUT  seconds until the machine is switched off, 1800
#   VM_SIZE     size of the disk of /data, 4G
#
# Processors are emulated: the machines that the project is tested on have no nested virtualization that boots. All is
# some ten times slower than outside.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${VM_CACHE:-$here/../bin/vm}
packages=btrfs-progs,ca-certificates,dbus,docker-cli,docker.io,e2fsprogs,git,iproute2,iptables,kmod,linux-image-amd64,nftables,procps,quota,systemd-sysv,udev,xfsprogs

say() { echo "vm: $*" >&2; }
die() {
  say "$*"
  exit 1
}

# tools installs what is missing here.
tools() {
  [[ $(id -u) -eq 0 ]] || die "run this as root"
  local missing=()
  command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
  command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
  [[ ${#missing[@]} -gt 0 ]] || return 0
  command -v apt-get >/dev/null || die "install ${missing[*]}"
  say "installing ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 update </dev/null >&2
  DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "${missing[@]}" </dev/null >&2
}

# build makes $cache/root.img, vmlinuz and initrd. A second build waits for the first.
build() {
  tools
  mkdir -p "$cache"
  cache=$(realpath "$cache")
  exec 8>"$cache/.lock"
  flock 8
  local recipe
  recipe=$(declare -f build machine | cat - <(echo "$packages") | sha256sum | cut -c1-16)
  if [[ $(cat "$cache/recipe" 2>/dev/null) != "$recipe" ]]; then
    say "making the machine's disk"
    local root
    root=$(mktemp -d)
    # shellcheck disable=SC2064 # the directory of now
    trap "rm -rf '$root'" EXIT
    mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" trixie "$root/files" >&2
    machine "$root/files"
    cp -L "$root"/files/vmlinuz "$cache/vmlinuz"
    cp -L "$root"/files/initrd.img "$cache/initrd"
    rm -f "$cache/root.img"
    truncate -s 6G "$cache/root.img"
    mke2fs -q -t ext4 -d "$root/files" "$cache/root.img"
    echo "$recipe" >"$cache/recipe"
  fi
  flock -u 8
}

# machine writes the files that are this machine's own into the tree $1.
machine() {
  echo vm >"$1/etc/hostname"
  echo '127.0.0.1 localhost vm' >"$1/etc/hosts"
  printf '%s\n' '/dev/vda / ext4 defaults 0 1' '/dev/vdb /data ext4 defaults,prjquota 0 2' >"$1/etc/fstab"
  mkdir -p "$1/data"
  ln -sf /dev/null "$1/etc/systemd/system/serial-getty@.service" # the console is the script's
  cat >"$1/etc/systemd/system/vm-run.service" <<'UNIT'
[Unit]
Description=The script of hack/vm.sh
After=docker.service

[Service]
Type=oneshot
WorkingDirectory=/data
ExecStart=/bin/bash -c 'echo "vm: begin"; bash /data/run.sh; echo $? >/data/rc; sync'
ExecStopPost=/bin/systemctl poweroff --no-block
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0

[Install]
WantedBy=multi-user.target
UNIT
  ln -sf ../vm-run.service "$1/etc/systemd/system/multi-user.target.wants/vm-run.service"
}

run() {
  local dir work rc=0
  dir=$(realpath "$1")
  [[ -e $dir/run.sh ]] || die "$dir/run.sh is missing"
  build
  work=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  truncate -s "${VM_SIZE:-4G}" "$work/data.img"
  mke2fs -q -t ext4 -O quota,project -d "$dir" "$work/data.img"
  timeout --foreground "${VM_TIMEOUT:-1800}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m "${VM_MEMORY:-3G}" \
    -display none -monitor none -serial stdio -no-reboot -nic none \
    -kernel "$cache/vmlinuz" -initrd "$cache/initrd" -append 'root=/dev/vda rw console=ttyS0 quiet panic=-1 systemd.show_status=0' \
    -drive "file=$cache/root.img,if=virtio,format=raw,snapshot=on" \
    -drive "file=$work/data.img,if=virtio,format=raw,cache=unsafe" \
    </dev/null | tee "$cache/console.log" | sed -u 's/\r//' | sed -u '0,/vm: begin/d' || rc=$?
  [[ $rc -eq 0 ]] || die "the machine ended with $rc (124: VM_TIMEOUT)"
  rm -rf "$dir/out"
  debugfs -R "rdump /out $dir" "$work/data.img" >/dev/null 2>&1 || true # there may be none
  rc=$(debugfs -R 'cat /rc' "$work/data.img" 2>/dev/null)
  [[ -n $rc ]] || die 'the script did not end'
  exit "$rc"
}

case ${1:-} in
build) build ;;
run) run "${2:?usage: hack/vm.sh run DIR}" ;;
*)
  echo 'usage: hack/vm.sh build | run DIR' >&2
  exit 2
  ;;
esac
