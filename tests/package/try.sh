#!/usr/bin/env bash
# Prevents: a package that does not install, whose programs lack a library, or that leaves something when it is removed,
# on a system that has nothing of a build. Makes a bare system in a temporary folder; takes minutes.
# usage: try.sh debian|ubuntu deb|wheel [TARBALL]
#   TARBALL   the bare system of an earlier call; made here if it does not exist
# Needs root, debootstrap, a network, and the package of `./x package`. Exit codes: 0 fine; 1 a check failed; 2 usage
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/package/bare_system.sh
usage() { sed -n '/^# usage/,/^# Needs/s/^# //p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
(($# == 2 || $# == 3)) || usage
case $1 in
  debian) suite=bookworm ;;
  ubuntu) suite=noble ;;
  *) usage ;;
esac
[[ $2 == deb || $2 == wheel ]] || usage
version=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)

work=$(mktemp -d)
root=$work/root
cleanup() {
  local place
  for place in dev/shm dev proc; do ! mountpoint -q "$root/$place" || umount "$root/$place"; done
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT
fail() {
  echo "try: $*" >&2
  [[ ! -e $work/said ]] || tail -n 20 "$work/said" >&2
  exit 1
}
# inside COMMAND: as root of the bare system, in no environment of this one.
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@" >"$work/said" 2>&1; }
# as_user COMMAND: the same as a user with a home.
as_user() {
  chroot --userspec=1000:1000 "$root" env -i PATH="$path" HOME=/home/user LC_ALL=C.UTF-8 \
    sh -c 'cd && "$@"' _ "$@" >"$work/said" 2>&1
}

bare_system "$suite" "" "${3:-}" >"$work/said" 2>&1 || fail "debootstrap failed"
mount -t proc proc "$root/proc"
devices
mkdir -p "$root/home/user"
chown 1000:1000 "$root/home/user"

apt=(env DEBIAN_FRONTEND=noninteractive apt-get -y -qq --no-install-recommends)
inside "${apt[@]}" update || fail "apt-get update"
if [[ $2 == deb ]]; then
  path=/usr/bin:/bin
  cp build-package/packages/sluice{,-lab,-dev}_"$version"_*.deb "$root/root/"
  # shellcheck disable=SC2016  # for the inner shell to expand
  inside sh -c '"$@" install /root/*.deb' _ "${apt[@]}" || fail "the packages do not install"
  place=/usr
else
  path=/opt/venv/bin:/usr/bin:/bin
  cp build-package/wheels/sluice-"$version"-*.whl "$root/root/"
  inside "${apt[@]}" install python3-venv || fail "no python3-venv"
  inside python3 -m venv /opt/venv || fail "no virtual environment"
  inside sh -c '/opt/venv/bin/pip install --no-index /root/*.whl' || fail "the wheel does not install"
  place=/opt/venv
fi

echo "try: $1: installed"
as_user sluice --version || fail "sluice does not start"
grep -qx "sluice $version" "$work/said" || fail "wrong version"
[[ -e $root$place/share/man/man1/sluice-exec.1.gz ]] || fail "no man page in $place"
# Every program finds its libraries. The driver is that of the machine, or the simulated one.
inside sh -c "find $place -path '*/libexec/sluice/*' -o -path '*/lib/sluice/*.so' | xargs ldd 2>/dev/null" || true
grep -q 'libc.so.6 =>' "$work/said" || fail "ldd looked at nothing"
grep 'not found' "$work/said" | grep -v 'libcuda.so.1' && fail "a library is missing"
if as_user sluice doctor; then fail "sluice doctor finds a GPU here"; fi
grep -q '^problem  driver' "$work/said" || fail "sluice doctor does not name the driver"
grep -q '^warning  parts .*LibTorch' "$work/said" || fail "sluice doctor does not name LibTorch"
as_user sluice doctor --gpu sim || fail "sluice doctor --gpu sim finds a problem"
as_user sluice demo --gpu sim --seconds-per-phase 3 || fail "sluice demo failed"
grep -E 'device' "$work/said" || fail "sluice demo printed no table"
inside sluice doctor --gpu sim || [[ $2 == wheel ]] || fail "sluice doctor fails as root"
as_user sh -c 'sluice report results/demo-*' || fail "sluice report needs more than python3 for a run without a trace"
grep -q '^page: ' "$work/said" || fail "sluice report names no page"
as_user sluice bench programs --help || true # the wheel has no laboratory
grep -q 'usage: sluice bench programs' "$work/said" || { [[ $2 == wheel ]] && grep -q 'sluice-lab' "$work/said"; } ||
  fail "sluice bench neither runs nor says where it is"
echo "try: $1: the demo ran"

# The simulated GPU ends after the last program that uses it.
for ((i = 0; i < 20; ++i)); do
  find "$root/dev/shm" -mindepth 1 >"$work/said"
  [[ -s $work/said ]] || break
  sleep 1
done
[[ ! -s $work/said ]] || fail "left in /dev/shm"
if [[ $2 == deb ]]; then
  inside "${apt[@]}" purge sluice sluice-lab sluice-dev || fail "the packages cannot be removed"
else
  inside /opt/venv/bin/pip uninstall -y sluice || fail "the wheel cannot be removed"
fi
find "$root" -xdev -iname '*sluice*' ! -path "$root/root/*" ! -path "$root/home/*" ! -path '*/var/cache/*' >"$work/said"
[[ ! -s $work/said ]] || fail "left after the removal"
echo "try: $1: removed, and nothing is left"
