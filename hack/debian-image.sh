#!/usr/bin/env bash
# Makes an image from Debian's packages, without a registry: debian-image.sh dev|packages|interpreter
#
#   dev       agbox-dev:dev, to work in: bash, git, Python, Node and npm, a C compiler, curl, jq, ripgrep
#   packages  agbox-packages:dev, in which tests install packages: apt, dnf, rpmbuild, pip, sudo
#   interpreter  agbox-interpreter:dev, which runs cells for @e2b/code-interpreter: ipykernel, matplotlib, pandas
#
# All have a user agbox (1000) who may use sudo without a password. Needs root, Debian's mmdebstrap and mirror, and the docker command.
#
# An image carries a hash of this recipe; an image of the same recipe is kept, one of an older recipe is replaced. Unlike
# agbox-base:dev they depend on what the mirror has: FORCE=1 brings them up to date.
#
#   IMAGE    another name for the image
#   FORCE=1  replace the image in any case
set -euo pipefail
export LC_ALL=C
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
hooks=()
case ${1:-} in
dev)
  suite=trixie # its Node (20) is new enough for today's agent programs
  packages=(bash-completion build-essential ca-certificates curl file git jq less nano nodejs npm openssh-client patch
    pkg-config procps python-is-python3 python3 python3-pip python3-venv ripgrep rsync sudo unzip xz-utils)
  ;;
packages)
  suite=bookworm # the first one with dnf
  packages=(adduser createrepo-c dnf libcap2-bin python3-pip python3-setuptools python3-wheel rpm sudo)
  ;;
interpreter)
  suite=trixie
  packages=(ca-certificates curl procps python-is-python3 python3-ipykernel python3-matplotlib python3-pandas python3-pip python3-venv sudo)
  hooks=(--customize-hook="install -m 0755 '$here/interpreter/agbox-interpreter' \"\$1/usr/local/bin/\""
    --customize-hook='printf "[global]\nbreak-system-packages = true\n" >"$1/etc/pip.conf"') # cells install packages as on E2B
  ;;
*)
  echo 'usage: hack/debian-image.sh dev|packages|interpreter' >&2
  exit 2
  ;;
esac
kind=$1
image=${IMAGE:-agbox-$kind:dev}
label=io.github.agbox.$kind-image.recipe

die() {
  echo "$kind-image: $*" >&2
  exit 1
}

# ensure_mmdebstrap installs Debian's mmdebstrap when it is missing.
ensure_mmdebstrap() {
  [[ $(id -u) -eq 0 ]] || die "mmdebstrap needs root: run this as root"
  command -v mmdebstrap >/dev/null && return 0
  command -v apt-get >/dev/null || die "mmdebstrap is missing: install it"
  echo "$kind-image: installing mmdebstrap"
  DEBIAN_FRONTEND=noninteractive apt-get -q update </dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends mmdebstrap </dev/null
}

# rootfs writes the image's files to the tar $1. Documentation and translations stay out, also of packages installed later.
rootfs() {
  local options=() path
  for path in doc man locale; do options+=("--dpkgopt=path-exclude=/usr/share/$path/*"); done
  mmdebstrap --quiet --mode=root --variant=minbase --include="$(IFS=,; echo "${packages[*]}")" "${options[@]}" \
    --customize-hook='chroot "$1" useradd --create-home --shell /bin/bash --uid 1000 agbox' \
    --customize-hook='install -d -o 1000 -g 1000 "$1/workspace"' \
    --customize-hook='echo "agbox ALL=(ALL:ALL) NOPASSWD: ALL" | install -m 0440 /dev/stdin "$1/etc/sudoers.d/agbox"' \
    "${hooks[@]}" \
    --customize-hook='rm -f "$1/etc/resolv.conf" "$1/etc/hostname"' \
    "$suite" "$1" 2>"$1.log" || { tail -20 "$1.log" >&2; die "mmdebstrap failed"; }
}

command -v docker >/dev/null || die "the docker command is missing; hack/engine.sh installs it, or install Debian's docker.io"
recipe=("${BASH_SOURCE[0]}")
[[ $kind != interpreter ]] || recipe+=("$here/interpreter/agbox-interpreter")
want=$(cat "${recipe[@]}" | sha256sum | cut -c1-16)
have=$(docker image inspect --format "{{index .Config.Labels \"$label\"}}" "$image" 2>/dev/null || true)
if [[ $have == "$want" && ${FORCE:-} != 1 ]]; then
  echo "$kind-image: $image is there (recipe $want)"
  exit 0
fi

ensure_mmdebstrap
echo "$kind-image: making $image; it takes a few minutes"
old=$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null || true)
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
rootfs "$work/rootfs.tar"
docker import \
  --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
  --change 'ENV LANG=C.UTF-8' \
  --change 'WORKDIR /workspace' \
  --change 'CMD ["/bin/bash"]' \
  --change "LABEL $label=$want" \
  "$work/rootfs.tar" "$image" >/dev/null
if [[ -n $old && $old != "$(docker image inspect --format '{{.Id}}' "$image")" ]]; then
  docker image rm "$old" >/dev/null 2>&1 || true # a container may still use it
fi
echo "$kind-image: made $image (recipe $want)"
