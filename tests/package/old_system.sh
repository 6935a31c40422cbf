#!/usr/bin/env bash
# Prevents: an interposer that a container with an older glibc cannot load, so that its program runs ungated. Makes a
# bare system of Debian 11 (glibc 2.31) or Ubuntu 22.04 (2.35) in a temporary folder, compiles there a program and the
# recording driver, and runs it with the interposer of a build mounted as `sluice cdi` does.
# usage: old_system.sh bullseye|jammy BUILD [TARBALL]
#   TARBALL   the bare system of an earlier call; made here if it does not exist
# Needs root, debootstrap and a network. Exit codes: 0 fine; 1 a check failed; 2 usage; 77 it cannot be tried here
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/package/bare_system.sh
usage() { sed -n '/^# usage/,/^# Needs/s/^# //p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
(($# == 2 || $# == 3)) || usage
[[ $1 == bullseye || $1 == jammy ]] || usage
build=$(realpath "$2")
library=$build/lib/sluice/libsluice_intercept.so
cuda=$(sed -n 's/^SLUICE_CUDA_INCLUDE_DIR:[A-Z]*=//p' "$build/CMakeCache.txt")
((UID == 0)) || { echo "SKIPPED: needs root" && exit 77; }
[[ -e ${3:-} ]] || command -v debootstrap >/dev/null || { echo "SKIPPED: no debootstrap" && exit 77; }

work=$(mktemp -d)
root=$work/root
export SLUICE_SESSION=test-$$-old-system
cleanup() {
  local place
  [[ -z ${controller:-} ]] || kill "$controller" 2>/dev/null || true
  for place in opt/sluice opt/source opt/cuda dev/shm proc; do
    ! mountpoint -q "$root/$place" || umount "$root/$place"
  done
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT
fail() {
  echo "old_system: $*" >&2
  cat "$work/said" >&2
  exit 1
}
inside() { chroot "$root" env -i PATH=/usr/bin:/bin LC_ALL=C.UTF-8 SLUICE_SESSION="$SLUICE_SESSION" "$@"; }

bare_system "$1" g++ "${3:-}" >"$work/said" 2>&1 || fail "debootstrap failed"
mkdir -p "$root"/opt/{sluice,source,cuda}
mount -t proc proc "$root/proc"
mount --bind /dev/shm "$root/dev/shm"
mount --bind -o ro "$PWD" "$root/opt/source"
mount --bind -o ro "$cuda" "$root/opt/cuda"
mount --bind -o ro "${library%/*}" "$root/opt/sluice"

compile=(g++ -std=c++20 -O1 -pthread -I/opt/source -I/opt/source/include -isystem /opt/cuda)
standins=/opt/source/tests/support/standins
inside "${compile[@]}" -fPIC -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -o /opt/libcuda.so.1 \
  "$standins"/fakecuda/{exports,lookup,state}.cpp -ldl >"$work/said" 2>&1 || fail "the recording driver does not compile"
inside "${compile[@]}" -o /opt/client "$standins/hook_client.cpp" /opt/libcuda.so.1 -Wl,-rpath,/opt -ldl \
  >"$work/said" 2>&1 || fail "the program does not compile"

"$build/bin/sluice" controller >"$work/controller" 2>&1 &
controller=$!
for ((i = 0; i < 50; ++i)); do
  ! "$build/bin/sluice" status >"$work/said" 2>&1 || break
  sleep 0.1
done
preload=LD_PRELOAD=/opt/sluice/libsluice_intercept.so
inside "$preload" /bin/true >"$work/said" 2>&1 || fail "a program without a GPU does not start"
[[ ! -s $work/said ]] || fail "a program without a GPU says something"
printf 'begin\nexit\n' | inside "$preload" SLUICE_PRIORITY=1 /opt/client >"$work/said" 2>&1 || fail "the program fails"
[[ $(xargs <"$work/said") == "attached ok" ]] || fail "the program is not gated"
# Held by nobody, seen from outside.
mkfifo "$work/orders"
inside "$preload" SLUICE_PRIORITY=0 /opt/client <"$work/orders" >"$work/said" 2>&1 &
exec 3>"$work/orders"
for ((i = 0; i < 50; ++i)); do
  ! "$build/bin/sluice" status --json >"$work/status" || ! grep -q '"gated": 1,' "$work/status" || break
  sleep 0.1
done
((i < 50)) || fail "status shows no gated launch of the program"
exec 3>&-
wait %2 || fail "the program ends with an error"
echo "old_system: $1, $(inside ldd --version | sed -n 1p): the program was gated"
