#!/usr/bin/env bash
# Programs that try to break Sluice: README.md. Needs nvcc, a finished ./x build, and 240 s on four GPUs for `cpp`. With
# HOSTILE_GPU=sim, those of the driver API on the simulated GPU.
#
#   tests/real_gpu/hostile/run.sh OUT SECONDS [SET | PROGRAM ...] [OPTION ...]
# SET: all cpp py multi. Options: run.py --help.
# SLUICE_ROOT: the checkout. PYTHON: of the Python programs. HOSTILE_BIN: the folder of the binary (/tmp/hostile-build).
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=$1 seconds=${2:-240}
begin=$SECONDS
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit
export SLUICE_ROOT=${SLUICE_ROOT:-$(cd "$here/../../.." && pwd)}
bin=${HOSTILE_BIN:-/tmp/hostile-build}
if [ "${HOSTILE_GPU:-real}" = sim ]; then
  mkdir -p "$bin"
  g++ -O1 -std=c++20 -I"${CUDA_INCLUDE:-/usr/local/cuda/include}" -o "$bin/hostile" "$here"/main.cpp "$here"/driver/*.cpp \
    -L/usr/local/cuda/lib64/stubs -lcuda -lpthread -ldl && cc -O1 -shared -fPIC -o "$bin/libshim.so" "$here/shim.c" -ldl || exit 1
elif [ ! -x "$bin/hostile" ] || [ -n "$(find "$here"/*.[ch]* "$here"/{driver,runtime} -newer "$bin/hostile")" ]; then
  bash "$here/build.sh" "$bin" >"$out/build.txt" 2>&1 || { tail -20 "$out/build.txt"; exit 1; }
fi
exec python3 "$here/run.py" --bin "$bin" --out "$out" --seconds $((seconds - (SECONDS - begin))) "${@:3}"
