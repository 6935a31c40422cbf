#!/usr/bin/env bash
# Prevents: a node service that runs on as a deleted program after an upgrade, that is not stopped by a removal, or that
# leaves files after a purge; and clients that such a step ends or leaves behind. Boots systemd as PID 1 of a bare
# system, installs the packages, starts the service and a client of each of two users, and upgrades to the same files
# with a later version. Takes minutes.
# usage: service.sh bookworm|noble [TARBALL]
#   TARBALL   the bare system of an earlier call; made here if it does not exist
# Needs root, debootstrap, a network, and the packages of `./x package deb`. Exit codes: 0 fine; 1 a check failed; 2 usage
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/package/bare_system.sh
usage() { sed -n '/^# usage/,/^# Needs/s/^# //p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
[[ $# == [12] && ($1 == bookworm || $1 == noble) ]] || usage
if [[ -z ${SLUICE_TEST_ISOLATED:-} ]]; then # what is mounted and started ends with this script
  export SLUICE_TEST_ISOLATED=1
  exec unshare --mount --propagation private --pid --ipc --uts --cgroup --fork --kill-child --mount-proc "$0" "$@"
fi
version=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
work=$(mktemp -d)
root=$work/root
cleanup() {
  [[ -z ${init:-} ]] || { kill -KILL "$init" && wait "$init"; } 2>/dev/null || true
  findmnt -rno TARGET | grep "^$work" | sort -r | xargs -r umount -l
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT
fail() {
  echo "service: $*" >&2
  tail -v -n 15 "$work"/said* >&2
  exit 1
}
pass() { echo "service: $*"; }

bare_system "$1" systemd,systemd-sysv,python3 "${2:-}" >"$work/said" 2>&1 || fail "debootstrap failed"
mount --bind "$root" "$root"
devices
mkdir -p "$root/packages"
cp build-package/packages/sluice{,-lab,-dev}_"$version"_*.deb "$root/packages/"
# A later version with the same files.
for deb in "$root"/packages/*.deb; do
  dpkg-deb -R "$deb" "$work/later"
  sed -i "s/^Version: .*/&+later/; s/(= $version)/(= $version+later)/" "$work/later/DEBIAN/control"
  mkdir -p "$root/later"
  dpkg-deb --root-owner-group -b "$work/later" "$root/later/${deb##*/}" >"$work/said" 2>&1
  rm -r "$work/later"
done

# As PID 1 of a process namespace inside ours; cgroups of version 1 for it alone.
boot() {
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t tmpfs -o mode=755 tmpfs "$root/run"
  mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
  mkdir "$root/sys/fs/cgroup/systemd"
  mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
  exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" /lib/systemd/systemd
}
export -f boot
export root
unshare --pid --fork --kill-child bash -c boot >"$work/said-systemd" 2>&1 &
init=$!
inside() {
  nsenter --target "$(pgrep -P "$init")" --mount --pid chroot "$root" \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
# within SECONDS COMMAND: until the command succeeds.
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >"$work/said" 2>&1; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}
within 60 inside systemctl is-active --quiet basic.target || fail "systemd does not start"
pass "systemd is PID 1 of a bare $1"

apt() { inside apt-get -y -qq --no-install-recommends "$@" >"$work/said" 2>&1; }
apt update || fail "apt-get update"
# shellcheck disable=SC2016  # for the inner shell to expand
inside sh -c 'apt-get -y -qq --no-install-recommends install /packages/*.deb' >"$work/said" 2>&1 || fail "no install"
! inside systemctl is-active --quiet sluice-node || fail "an install starts the service"
inside systemctl enable --now sluice-node >"$work/said" 2>&1 || fail "the service does not start"
within 20 inside test -S /run/sluice/node.sock || fail "the service makes no socket"
pass "installed, the service runs"

# client NAME UID PRIORITY: a program of a user, for as long as the script runs.
client() {
  inside setpriv --reuid="$2" --regid="$2" --clear-groups sluice exec --gpu sim --name "$1" --priority "$3" -- \
    /usr/libexec/sluice/sluice-example-spin --seconds 900 >"$work/said-$1" 2>&1 &
}
attached() { [[ $(inside sluice status --json | grep -c '"slot": ') == "$1" ]]; }
client critical 1000 0
client train 1001 0
within 60 attached 2 || fail "the clients do not attach"
pid() { inside systemctl show --value --property MainPID sluice-node; }
program() { inside readlink "/proc/$(pid)/exe"; }
old=$(pid)

inside sh -c 'apt-get -y -qq install /later/*.deb' >"$work/said" 2>&1 || fail "no upgrade"
within 20 attached 2 || fail "after the upgrade, the clients are gone"
[[ $(pid) != "$old" && $(pid) != 0 ]] || fail "after the upgrade, the old service runs"
[[ $(program) == */usr/libexec/sluice/sluice-node ]] || fail "the service runs $(program)"
client late 1002 0
within 60 attached 3 || fail "after the upgrade, no client can attach"
pass "upgraded: the new service has the board with the clients of the old one, and takes new ones"

# The unit of the guide, with a model that needs no GPU.
unit=etc/systemd/system/sluice-serve.service
mkdir -p "$root/etc/sluice" "$root/var/lib/sluice/models"
sed -n "\\#^\# /$unit#,/^\`\`\`/{/^\`\`\`/d;p}" docs/guide/serving.md >"$root/$unit"
printf 'dummy\n  path dummy\n' >"$root/etc/sluice/models"
inside systemctl start sluice-serve >"$work/said" 2>&1 || fail "the model server does not start"
ready='import urllib.request as r; r.urlopen("http://127.0.0.1:8081/v2/health/ready")'
within 30 inside python3 -c "$ready" || fail "the model server is not ready: $(inside journalctl -u sluice-serve -n 5)"
inside systemctl stop sluice-serve
[[ $(inside systemctl show --value -p NRestarts -p Result sluice-serve | xargs) =~ ^(0 success|success 0)$ ]] ||
  fail "the model server: $(inside systemctl show -p NRestarts -p Result sluice-serve | xargs)"
rm -r "${root:?}/$unit" "$root/etc/sluice" "$root"/var/lib/{private/,}sluice
inside systemctl daemon-reload
pass "the model server ran as a service, and ended with 0"

apt remove sluice || fail "no removal"
! inside systemctl is-active --quiet sluice-node || fail "a removal leaves the service running"
programs=/usr/libexec/sluice
[[ $(pgrep -fc "^$programs/sluice-example-spin") == 3 ]] || fail "a removal ends programs"
pass "removed: the service is stopped, the programs run on"
inside sh -c 'apt-get -y -qq install /later/*.deb' >"$work/said" 2>&1 || fail "no second install"
inside systemctl restart sluice-node || fail "the service does not start again"
apt purge sluice sluice-lab sluice-dev || fail "no purge"
! inside systemctl is-active --quiet sluice-node || fail "a purge leaves the service running"
pkill -f "^$programs/sluice-example-spin" || true
gone() { ! pgrep -f "^$programs/"; }
within 30 gone || fail "processes are left"
left() {
  inside find / -xdev -iname '*sluice*' ! -path '/var/cache/apt/*' ! -path '/packages/*' ! -path '/later/*'
  inside find /run /dev/shm -iname '*sluice*'
}
clean() { [[ -z $(left) ]]; }
within 20 clean || fail "left after the purge: $(left | xargs)"
pass "purged: nothing is left"
