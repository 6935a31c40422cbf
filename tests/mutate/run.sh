#!/bin/sh
# Tests the runner of ./x mutate: run.sh VENV. Exit code 77, skipped: no Python has its parsers (./x mutate fetches them).
for python in "$1/bin/python" python3; do
  "$python" -c 'import tomllib, tree_sitter, tree_sitter_cpp, tree_sitter_python' 2>/dev/null &&
    exec "$python" "$(dirname "$0")/mutate_test.py"
done
echo "SKIPPED: neither $1 nor python3 has tree_sitter, tree_sitter_cpp and tree_sitter_python"
exit 77
