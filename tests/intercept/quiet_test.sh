#!/usr/bin/env bash
# The preload is inherited by every shell and helper of a program. Those without CUDA must see
# nothing of it: no thread, file, message or change of behaviour. usage: quiet_test.sh LIBRARY PROGRAM
set -euo pipefail
library=$1 program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SLUICE_SESSION=quiet-$$ SLUICE_POLICY=nonsense SLUICE_LOG=debug

compare() {
  local name=$1
  shift
  "$@" >"$work/without" 2>&1
  LD_PRELOAD=$library "$@" >"$work/with" 2>&1
  if ! diff "$work/without" "$work/with"; then
    echo "$name sees the preload" >&2
    exit 1
  fi
}

compare "a program without CUDA" "$program"
# shellcheck disable=SC2016  # for the inner shell to expand
compare "a shell" /bin/sh -c 'echo $0; (exit 3); echo $?; for i in 1 2 3; do echo $i | cat; done'
compare "ls" /bin/ls /
compare "a forking shell" /bin/sh -c '/bin/sh -c "/bin/ls /proc/self/fd | wc -l" & wait'
runtime=/dev/shm/sluice-$(id -u)
! ls "$runtime/$SLUICE_SESSION".* >/dev/null 2>&1 || { echo "something was left in the runtime folder" >&2; exit 1; }
echo "quiet"
