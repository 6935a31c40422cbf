#!/usr/bin/env bash
# Prevents: with the libstdc++ of a module or a conda environment in LD_LIBRARY_PATH, `sluice exec` ends with messages of
# the loader, and the program is not started. usage: runtime_test.sh BUILD_FOLDER CXX
set -euo pipefail
build=$1 cxx=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
complain() {
  echo "runtime_test: $*" >&2
  failed=1
}

# Only a program that links other shared libraries of C++ may need the runtime of the machine.
seen=0
while read -r file; do
  [[ -f $file ]] || continue  # this build has some targets only
  seen=$((seen + 1))
  needed=$(readelf -d "$file" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  if grep -qE '^lib(grpc|protobuf|torch|c10|xgboost)' <<<"$needed"; then continue; fi
  case $file in */libsluice_serve_*) continue ;; esac # loaded by `sluice serve`, which links gRPC
  bad=$(grep -E '^lib(stdc\+\+|gcc_s|fmt|spdlog)' <<<"$needed" || true)
  [[ -z $bad ]] || complain "$file needs" "${bad//$'\n'/, }"
done <"$build/sluice_placed.txt"
((seen > 0)) || complain "no program is built"

# What matters of the libstdc++ of GCC 10: it ends with GLIBCXX_3.4.28. And a fmt that is none.
cat >"$work/map" <<'END'
GLIBCXX_3.4 { global: *; };
GLIBCXX_3.4.28 { } GLIBCXX_3.4;
CXXABI_1.3 { };
CXXABI_1.3.12 { } CXXABI_1.3;
END
echo 'extern "C" { int old = 0; }' >"$work/old.cpp"
for library in libstdc++.so.6 libgcc_s.so.1 libfmt.so.9; do
  "$cxx" -shared -fPIC -nostdlib -Wl,-soname,$library -Wl,--version-script="$work/map" "$work/old.cpp" -o "$work/$library"
done

sluice=$build/bin/sluice
session=test-$$-runtime
export LD_LIBRARY_PATH=$work SLUICE_NODE_DIR=
said=$("$sluice" exec --session "$session" --priority 0 --log-level off -- printenv LD_LIBRARY_PATH 2>&1) ||
  complain "sluice exec failed: $said"
[[ $said == "$work" ]] || complain "the program has another LD_LIBRARY_PATH, or did not run: $said"
said=$("$sluice" exec --session "$session" --priority 0 --log-level off --gpu sim -- "$build/libexec/sluice/sluice-example-spin" \
  --seconds 0.1 2>&1) || complain "a program on the simulated GPU failed: $said"
starts() {
  said=$("$sluice" "$@" 2>&1) || true
  [[ $said != *"version \`"* && $said != *"shared libraries"* ]] || complain "$*: $said"
}
starts gpus
starts status --session "$session"
starts set x --priority 1 --session "$session"
exit "$failed"
