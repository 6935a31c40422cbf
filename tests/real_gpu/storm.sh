#!/usr/bin/env bash
# The storm: a critical program and three best-effort ones while processes are killed. Prints p50 and p99
# of the critical jobs without and with kills of the controller, and how soon best effort flows again
# after the death of the critical program. Needs an NVIDIA GPU, Python with PyTorch 2.11, and a build of
# `sluice` (cmake --preset dev && ninja -C build). About 2 minutes; SECONDS is the length of each storm.
#
#   tests/real_gpu/storm.sh [SECONDS]     default 50
set -eu
cd "$(dirname "$0")/../.."
exec python3 tests/real_gpu/storm.py "$PWD/build/bin/sluice" "${1:-50}"
