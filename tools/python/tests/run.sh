#!/bin/sh
# Runs the tests with a Python that has torch: run.sh VENV [ARGS of pytest]. Exit code 77: there is
# none, and ctest reports the test as skipped.
venv=$1
shift

has() { "$1" -c "import importlib.util as u, sys; sys.exit(not u.find_spec('$2'))" 2>/dev/null; }

find_python() {
  for python in "${SLUICE_PYTHON:-}" "$venv/bin/python" python3; do
    [ -n "$python" ] && has "$python" torch && has "$python" torchvision && return
  done
  return 1
}

if ! find_python; then
  echo "SKIPPED: neither $venv nor python3 has torch and torchvision"
  exit 77
fi
if ! has "$python" pytest; then
  echo "$python has torch but no pytest; $python -m pip install pytest" >&2
  exit 1
fi
# pytest would keep the folders of its last three runs.
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
# No __pycache__ in the source tree.
PYTHONDONTWRITEBYTECODE=1 "$python" -m pytest -q -p no:cacheprovider --basetemp "$scratch/t" "$@"
