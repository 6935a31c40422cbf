#!/bin/sh
# Runs a module of sluice_tools with a Python that has the packages it needs. Configured by CMake, and
# the same file in the build tree and the install tree: the package is found relative to this script.
module='@SLUICE_PYTHON_MODULE@'
needs='@SLUICE_PYTHON_NEEDS@'
recorded_venv='@SLUICE_PYTHON_VENV@'
variable='@SLUICE_PYTHON_VARIABLE@'
eval "named=\${$variable:-}"

here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd) || exit 1
package=$here/../../share/sluice/python

# Finding the packages without importing them: an import takes seconds.
has_needs() {
  "$1" -c "import importlib.util as u, sys
sys.exit(not all(map(u.find_spec, '$needs'.split())))" 2>/dev/null
}

# Without them, python3 still runs what needs none, and says how to get them for the rest.
choose_python() {
  if [ -n "$named" ]; then
    echo "$named"
  elif has_needs "$recorded_venv/bin/python"; then
    echo "$recorded_venv/bin/python"
  else
    echo python3
  fi
}

python=$(choose_python)
if ! command -v "$python" >/dev/null 2>&1; then
  if [ -n "$named" ]; then
    echo "sluice ${module##*.}: $variable names $python, which is not a program" >&2
    exit 2
  fi
  echo "sluice ${module##*.}: no python3 found; install one (apt-get install python3 python3-venv)" >&2
  exit 1
fi
[ -z "$named" ] || recorded_venv=
SLUICE_VENV=$recorded_venv
PYTHONPATH=$package${PYTHONPATH:+:$PYTHONPATH}
SLUICE_PROGRAM=$here/../../bin/sluice
export PYTHONPATH SLUICE_PROGRAM SLUICE_VENV
# UTF-8 mode: files are the same in every locale.
exec "$python" -X utf8 -m "$module" "$@"
