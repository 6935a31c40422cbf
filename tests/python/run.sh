#!/bin/sh
# Runs tests with a Python that has PACKAGES: run.sh VENV PACKAGES [ARGS of pytest]. Exit code 77:
# there is none, and ctest reports the test as skipped. SLUICE_TEST_WORKERS: how many files run at
# once, where pytest-xdist is installed.
venv=$1
packages=$2
shift 2

has() {
  "$1" -c "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, '$2'.split())))" \
    2>/dev/null
}

find_python() {
  for python in "${SLUICE_PYTHON:-}" "$venv/bin/python" python3; do
    [ -n "$python" ] && has "$python" "$packages" && return
  done
  return 1
}

if ! find_python; then
  echo "SKIPPED: neither $venv nor python3 has all of: $packages"
  exit 77
fi
if ! has "$python" pytest; then
  echo "$python has $packages but no pytest: $python -m pip install pytest" >&2
  exit 1
fi
if [ "${SLUICE_TEST_WORKERS:-1}" -gt 1 ] && has "$python" xdist; then
  set -- -n "$SLUICE_TEST_WORKERS" --dist loadfile "$@"
fi
# pytest would keep the folders of its last three runs.
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
# No __pycache__ in the source tree.
PYTHONDONTWRITEBYTECODE=1 "$python" -m pytest -q -rs -p no:cacheprovider --basetemp "$scratch/t" "$@"
