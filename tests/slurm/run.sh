#!/bin/sh
# Runs the tests that start a Slurm cluster: run.sh VENV BUILD_FOLDER [ARGS of pytest]. In namespaces of its own, so
# that no process, file or mount is left, whatever happens. Exit code 77: not possible here.
skip() {
  echo "SKIPPED: $*"
  exit 77
}
[ "$(id -u)" = 0 ] || skip "slurmd needs root"
for program in slurmctld slurmd munged; do
  command -v "$program" >/dev/null || skip "no $program: apt-get install --no-install-recommends slurm-wlm munge"
done
isolated="unshare --mount --pid --fork --kill-child --mount-proc"
$isolated true || skip "no mount and process namespaces here"

python=$1/bin/python
"$python" -c 'import pytest' 2>/dev/null || python=python3
SLUICE_TEST_BUILD=$2
export SLUICE_TEST_BUILD
shift 2
# slurmd wants something mounted where cgroups are, and Sluice's files are in /run and /dev/shm. A checkout in /tmp must
# stay visible.
places="/sys/fs/cgroup /run /dev/shm"
case $(readlink -f "$0") in /tmp/*) ;; *) places="$places /tmp" ;; esac
export places
# shellcheck disable=SC2016  # for the inner shell to expand
exec $isolated sh -c 'for place in $places; do mount -t tmpfs none "$place" || exit 1; done
  chmod 1777 /dev/shm /tmp
  PYTHONDONTWRITEBYTECODE=1 "$0" -m pytest -q -p no:cacheprovider "$@"' "$python" "$(dirname "$0")" "$@"
