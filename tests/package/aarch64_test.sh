#!/usr/bin/env bash
# Prevents: assembly, symbol versions and layouts that only hold on x86-64. Builds the core for aarch64 with Debian's
# cross compiler and runs it in an emulator: the proofs of the interposer, a best-effort program that a critical one holds
# on the recording driver, and a program under `sluice exec` on the simulated GPU. The emulator has no robust mutexes, so
# nobody dies here. usage: aarch64_test.sh BUILD CUDA_INCLUDE
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$1/aarch64 cuda=$2
for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v "$tool" >/dev/null || { echo "SKIPPED: no $tool (apt-get install g++-aarch64-linux-gnu qemu-user)" && exit 77; }
done
emulate=(qemu-aarch64 -L /usr/aarch64-linux-gnu)
work=$(mktemp -d)
export SLUICE_SESSION=test-$$-aarch64
trap 'rm -rf "$work"' EXIT
fail() {
  echo "aarch64_test: $*" >&2
  tail -v -n 30 "$work"/said* >&2
  exit 1
}

targets=(sluice_intercept sluice_controller sluice sluice-exec sluice-status sluice_simgpu sluice_simgpu_cuda sluice-example-spin)
cmake -S . -B "$build" -G Ninja --toolchain cmake/aarch64.cmake -DBUILD_TESTING=OFF -DSLUICE_CUDA_INCLUDE_DIR="$cuda" \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 >"$work/said" 2>&1 || fail "cmake does not configure"
# Last, so that the tests beside it run as without it.
nice -n 19 cmake --build "$build" --target "${targets[@]}" >"$work/said" 2>&1 || fail "the core does not compile"

library=$build/lib/sluice/libsluice_intercept.so
mapfile -t objects < <(find "$build/intercept/CMakeFiles" -name '*.cpp.o')
for proof in exports constructors glibc imports tls dlsym; do
  OBJDUMP=aarch64-linux-gnu-objdump tests/intercept/proofs/proofs.sh "$proof" "$library" "$PWD" "$cuda" "${objects[@]}" \
    >"$work/said" 2>&1 || fail "proof $proof"
done

# A program that is started in the emulator starts others by their paths, so each of them is a script here.
cp -r "$build/bin" "$build/lib" "$build/libexec" "$work/"
for program in "$work"/bin/* "$work"/libexec/sluice/*; do
  [[ $(head -c 4 "$program") == $'\x7fELF' ]] || continue
  mv "$program" "$program.aarch64"
  # shellcheck disable=SC2016  # for the script to expand
  printf '#!/bin/sh\nexec %s -0 "$0" "$0.aarch64" "$@"\n' "${emulate[*]}" >"$program"
  chmod +x "$program"
done
compile=(aarch64-linux-gnu-g++ -std=c++20 -O1 -pthread -I. -Iinclude -isystem "$cuda")
standins=tests/support/standins
"${compile[@]}" -fPIC -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -o "$work/libcuda.so.1" \
  $standins/fakecuda/{exports,lookup,state}.cpp >"$work/said" 2>&1 || fail "the recording driver does not compile"
"${compile[@]}" -o "$work/client" $standins/hook_client.cpp "$work/libcuda.so.1" -Wl,-rpath,"$work" >"$work/said" 2>&1 ||
  fail "the program does not compile"

"$work/bin/sluice" controller >"$work/said-controller" 2>&1 &
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
# shows LINE: waits for a line of `sluice status --coverage`.
shows() {
  for ((i = 0; i < 100; ++i)); do
    ! "$work/bin/sluice" status --coverage >"$work/said-status" 2>&1 || ! grep -q "$1" "$work/said-status" || return 0
    sleep 0.1
  done
  fail "status does not say '$1'"
}
client=("${emulate[@]}" -E "LD_PRELOAD=$library" "$work/client")
mkfifo "$work/orders"
shows 'no clients'
SLUICE_PRIORITY=200 "${client[@]}" <"$work/orders" >"$work/said-critical" 2>&1 &
critical=$!
exec 3>"$work/orders"
echo begin >&3
shows ' 200 .* active '
SLUICE_POLICY=gate "${client[@]}" <<<exit >"$work/said-held" 2>&1 3>&- &
held=$!
shows ' 0 gate *held '
[[ ! -s $work/said-held ]] || fail "the program is not held"
echo exit >&3
wait $critical || fail "the critical program fails"
wait $held || fail "the held program fails"
[[ $(xargs <"$work/said-critical") == "attached ok" && $(<"$work/said-held") == attached ]] || fail "a program is not gated"

"$work/bin/sluice" exec --gpu sim --priority 1 -- "$work/libexec/sluice/sluice-example-spin" --seconds 1 \
  >"$work/said" 2>&1 &
spin=$!
shows 'cuLaunchKernel  *\([0-9][0-9][0-9]*\)  *\1  *0 .* -$'
wait $spin || fail "a program on the simulated GPU fails"
grep jobs/s "$work/said"
echo "aarch64: built and emulated"
