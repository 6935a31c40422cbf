#!/usr/bin/env bash
# Prevents: an install of a build of some targets only that leaves half of Sluice in place, without
# its Python tools. usage: install_test.sh SOURCE_FOLDER [ARGS of cmake]
set -euo pipefail
source=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "install_test: $*" >&2
  cat "$work/said" >&2
  exit 1
}
install() { cmake --install "$work/build" --prefix "$work/prefix" >"$work/said" 2>&1; }

# What stands for the programs below has no RPATH that the install could change.
cmake -S "$source" -B "$work/build" -DCMAKE_SKIP_RPATH=ON "$@" >"$work/said" 2>&1 || fail "cmake does not configure"

install && fail "an install without a build succeeded"
# CMake wraps its messages.
said=$(tr -s ' \n' ' ' <"$work/said")
for file in bin/sluice libexec/sluice/sluice-run lib/sluice/simgpu/libcuda.so.1; do
  [[ $said == *" $file"[,.]* ]] || fail "$file is not named as missing"
done
[[ $said == *"cmake --build"* ]] || fail "it does not say what to do"
[[ ! -e $work/prefix ]] || fail "something was put in place"

# With everything there, all of it.
while read -r file; do
  mkdir -p "$(dirname "$file")"
  cp /bin/true "$file"
done <"$work/build/sluice_placed.txt"
install || fail "an install of everything failed"
for file in bin/sluice libexec/sluice/sluice-parse share/sluice/python/sluice_tools/__init__.py; do
  [[ -e $work/prefix/$file ]] || fail "$file was not installed"
done
echo "installed"
