#!/usr/bin/env bash
# The proof `entries` for the newest cuda.h on PyPI. Skipped (77) where that cannot be fetched.
# usage: newest_entries.sh LIBRARY SOURCE
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --timeout 10 \
  --retries 0 --platform manylinux2014_x86_64 -d "$work" 'nvidia-cuda-runtime>=13.3'; then
  echo "skipped: the newest nvidia-cuda-runtime cannot be fetched from PyPI"
  exit 77
fi
python3 -m zipfile -e "$work"/*.whl "$work"
header=$(find "$work" -name cuda.h)
sed -n 's/^#define CUDA_VERSION /cuda.h of CUDA_VERSION /p' "$header"
"$here/proofs.sh" entries "$1" "$2" "$(dirname "$header")"
