#!/usr/bin/env bash
# Makes the image agbox-base:dev without a registry: Debian's static busybox, and a user agbox with a home, a workspace
# and /tmp. Needs the docker command and access to the engine, not root.
#
# The image carries a hash of this recipe; an image of the same recipe is kept, one of an older recipe is replaced.
# The same inputs give the same layer, bit by bit.
#
#   AGBOX_BASE_IMAGE  name of the image (agbox-base:dev)
#   BUSYBOX           path of a static busybox (/bin/busybox)
#   FORCE=1           rebuild the image in any case
set -euo pipefail
export LC_ALL=C
umask 022

image=${AGBOX_BASE_IMAGE:-agbox-base:dev}
busybox=${BUSYBOX:-/bin/busybox}
label=io.github.agbox.base-image.recipe

die() {
  echo "base-image: $*" >&2
  exit 1
}

# ensure_busybox installs Debian's static busybox when there is none and we are root.
ensure_busybox() {
  is_static "$busybox" && return 0
  [[ -z ${BUSYBOX:-} ]] || die "$busybox is not a static busybox"
  if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
    die "no static busybox at $busybox: install Debian's busybox-static, or name one with BUSYBOX=PATH"
  fi
  echo "base-image: installing busybox-static"
  DEBIAN_FRONTEND=noninteractive apt-get -q update </dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends busybox-static </dev/null
  is_static "$busybox" || die "$busybox is not static although busybox-static was installed"
}

# is_static tells whether $1 is an executable without a dynamic loader; ldd refuses those.
is_static() { [[ -x $1 ]] && ! ldd "$1" >/dev/null 2>&1; }

# recipe prints the hash of all that the image depends on.
recipe() { cat "${BASH_SOURCE[0]}" "$busybox" | sha256sum | cut -c1-16; }

# applets links every applet to /bin/busybox, relatively, below the root directory $1.
applets() {
  local path up
  "$busybox" --list-full | while read -r path; do
    [[ $path == */* && $path != bin/busybox ]] || continue
    mkdir -p "$1/${path%/*}"
    up=$(dirname "$path" | sed -E 's,[^/]+,..,g')
    ln -sfn "$up/bin/busybox" "$1/$path"
  done
}

# rootfs fills the directory $1. Owners are set later, by tar, so that it needs no root.
rootfs() {
  mkdir -p "$1"/{bin,dev,etc,home/agbox,proc,root,run,sbin,sys,tmp,usr/bin,usr/sbin,var/log,var/tmp,workspace}
  install -m 0755 "$busybox" "$1/bin/busybox"
  applets "$1"
  cat >"$1/etc/passwd" <<-'END'
	root:x:0:0:root:/root:/bin/sh
	agbox:x:1000:1000:agbox:/home/agbox:/bin/sh
	nobody:x:65534:65534:nobody:/nonexistent:/bin/false
	END
  cat >"$1/etc/group" <<-'END'
	root:x:0:
	agbox:x:1000:
	nogroup:x:65534:
	END
  chmod 0700 "$1/root"
  chmod 1777 "$1/tmp" "$1/var/tmp"
}

# archive writes the root directory $1 as a tar to $2, with root as the owner of all but the user's directories.
archive() {
  local mine=(./home/agbox ./workspace)
  local tar=(tar --create --sort=name --mtime=@0 --numeric-owner --format=ustar -C "$1")
  "${tar[@]}" --owner=0 --group=0 "${mine[@]/#/--exclude=}" -f "$2" .
  "${tar[@]/--create/--append}" --owner=1000 --group=1000 -f "$2" "${mine[@]}"
}

command -v docker >/dev/null || die "the docker command is missing; hack/engine.sh installs it, or install Debian's docker.io"
ensure_busybox
want=$(recipe)
have=$(docker image inspect --format "{{index .Config.Labels \"$label\"}}" "$image" 2>/dev/null || true)
if [[ $have == "$want" && ${FORCE:-} != 1 ]]; then
  echo "base-image: $image is there (recipe $want)"
  exit 0
fi

old=$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null || true)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rootfs "$work/rootfs"
archive "$work/rootfs" "$work/rootfs.tar"
docker import \
  --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
  --change 'WORKDIR /workspace' \
  --change 'CMD ["/bin/sh"]' \
  --change "LABEL $label=$want" \
  "$work/rootfs.tar" "$image" >/dev/null
if [[ -n $old && $old != "$(docker image inspect --format '{{.Id}}' "$image")" ]]; then
  docker image rm "$old" >/dev/null 2>&1 || true # a container may still use it
fi
echo "base-image: made $image (recipe $want)"
