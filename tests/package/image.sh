#!/usr/bin/env bash
# Prevents: an image for Kubernetes that cannot be built, or whose programs lack a library or a module. Builds the
# Containerfile on a bare Debian 12, and runs in it what the manifest runs.
# usage: image.sh [TARBALL]
#   TARBALL   the bare system of an earlier call; made here if it does not exist
# Needs root, debootstrap, podman, a network, and the packages of `./x package deb`. Exit codes: 0 fine; 1 a check failed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/package/bare_system.sh
folder=tools/python/sluice_tools/device_plugin
work=$(mktemp -d)
root=$work/root
store=(--root "$work/store" --runroot "$work/run" --storage-driver vfs)
cleanup() {
  ! mountpoint -q "${image:-$work}/proc" || umount "$image/proc"
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT
fail() {
  echo "image: $*" >&2
  tail -n 15 "$work/said" >&2
  exit 1
}
tarball=${1:-$work/bare.tar}
[[ -e $tarball ]] || bare_system bookworm "" "$tarball" >"$work/said" 2>&1 || fail "debootstrap failed"
podman "${store[@]}" import "$tarball" localhost/bare:1 >"$work/said" 2>&1 || fail "podman import"
podman "${store[@]}" build --isolation chroot --build-arg BASE=localhost/bare:1 -t sluice -f "$folder/Containerfile" \
  build-package/packages >"$work/said" 2>&1 || fail "podman build"
echo "image: built"

image=$(podman "${store[@]}" image mount sluice)
mount -t proc proc "$image/proc"
inside() {
  chroot "$image" env -i PATH=/opt/sluice/bin:/usr/bin:/bin "$@" >"$work/said" 2>&1 || fail "$*"
}
inside python3 -c 'import grpc, google.protobuf'
inside sluice --version
inside sluice node --help
inside sluice device-plugin --help
inside sluice cdi --node
grep -q '"/opt/sluice/lib/sluice' "$work/said" || fail "cdi names another place"
[[ -e $image/opt/sluice/lib/sluice/libsluice_intercept.so ]] || fail "no interposer"
[[ -e $image/opt/sluice/share/sluice/kubernetes.yaml ]] || fail "no manifest"
echo "image: node service, device plugin and CDI file are there"
