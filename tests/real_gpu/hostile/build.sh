#!/usr/bin/env bash
# build.sh FOLDER [mps]: the binary and the preloaded library. mps: without kernels that launch kernels, which MPS refuses.
set -e
cd "$(dirname "$0")"
mkdir -p "$1"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
root=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
compile=(-rdc=true -DHOSTILE_DEVICE_LAUNCHES) link=(-lcudadevrt)
[ "${2:-}" = mps ] && compile=() link=()
"$nvcc" -std=c++20 -O2 "${compile[@]}" -arch=sm_90 --threads 3 -Xcompiler -pthread -o "$1/hostile" main.cpp driver/*.cpp \
  runtime/*.cu -L"$root/lib64/stubs" -L"$root/targets/x86_64-linux/lib/stubs" -lcuda "${link[@]}" -lpthread -ldl
cc -O1 -shared -fPIC -o "$1/libshim.so" shim.c -ldl
