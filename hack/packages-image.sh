#!/usr/bin/env bash
# Makes the image agbox-packages:dev, in which tests install packages: a small Debian with apt, dnf, rpmbuild, pip and sudo, and
# a user agbox (1000) who may use sudo without a password. Needs root, Debian's debootstrap and mirror, and the docker command.
#
# The image carries a hash of this recipe; an image of the same recipe is kept, one of an older recipe is replaced. Unlike
# agbox-base:dev it depends on what the mirror has: FORCE=1 brings it up to date.
#
#   AGBOX_PACKAGES_IMAGE  name of the image (agbox-packages:dev)
#   FORCE=1               replace the image in any case
set -euo pipefail
export LC_ALL=C
umask 022

image=${AGBOX_PACKAGES_IMAGE:-agbox-packages:dev}
label=io.github.agbox.packages-image.recipe
suite=bookworm # the first one with dnf
packages=(adduser createrepo-c dnf libcap2-bin python3-pip python3-setuptools python3-wheel rpm sudo)

die() {
  echo "packages-image: $*" >&2
  exit 1
}

# ensure_debootstrap installs Debian's debootstrap when it is missing.
ensure_debootstrap() {
  [[ $(id -u) -eq 0 ]] || die "debootstrap needs root: run this as root"
  command -v debootstrap >/dev/null && return 0
  command -v apt-get >/dev/null || die "debootstrap is missing: install it"
  echo "packages-image: installing debootstrap"
  DEBIAN_FRONTEND=noninteractive apt-get -q update </dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends debootstrap </dev/null
}

# rootfs fills the directory $1. debootstrap mounts /proc there; the mount namespace ends with it, also when it is killed.
rootfs() {
  unshare --mount --propagation private \
    debootstrap --variant=minbase --include="$(IFS=,; echo "${packages[*]}")" "$suite" "$1" >"$1.log" 2>&1 ||
    { tail -20 "$1.log" >&2; die "debootstrap failed"; }
  chroot "$1" useradd --create-home --shell /bin/bash --uid 1000 agbox
  install -d -o 1000 -g 1000 "$1/workspace"
  echo 'agbox ALL=(ALL:ALL) NOPASSWD: ALL' | install -m 0440 /dev/stdin "$1/etc/sudoers.d/agbox"
}

# archive writes the root directory $1 as a tar to the standard output, without what no test reads.
archive() {
  tar --create --numeric-owner --xattrs -C "$1" \
    --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' --exclude='./dev/*' \
    --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' .
}

command -v docker >/dev/null || die "the docker command is missing; hack/engine.sh installs it, or install Debian's docker.io"
want=$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-16)
have=$(docker image inspect --format "{{index .Config.Labels \"$label\"}}" "$image" 2>/dev/null || true)
if [[ $have == "$want" && ${FORCE:-} != 1 ]]; then
  echo "packages-image: $image is there (recipe $want)"
  exit 0
fi

ensure_debootstrap
echo "packages-image: making $image; it takes two minutes"
old=$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null || true)
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
rootfs "$work/rootfs"
archive "$work/rootfs" | docker import \
  --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
  --change 'WORKDIR /workspace' \
  --change 'CMD ["/bin/sh"]' \
  --change "LABEL $label=$want" \
  - "$image" >/dev/null
if [[ -n $old && $old != "$(docker image inspect --format '{{.Id}}' "$image")" ]]; then
  docker image rm "$old" >/dev/null 2>&1 || true # a container may still use it
fi
echo "packages-image: made $image (recipe $want)"
