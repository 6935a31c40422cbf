#!/usr/bin/env bash
# Prevents: packages whose bytes depend on when or where they were built. Builds both packages twice in this checkout,
# and once from a copy of the last commit in another folder. Commit first. Takes a compile of everything unless ccache has it.
# usage: reproducible.sh [deb|wheel ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
kinds=("$@")
(($#)) || kinds=(deb wheel)
work=$(mktemp -d)
trap 'git worktree remove --force "$work/copy" 2>/dev/null; rm -rf "$work"' EXIT
[[ -z $(git status --porcelain --untracked-files=no) ]] || { echo "reproducible: uncommitted changes" >&2 && exit 2; }
git worktree add -q --detach "$work/copy" HEAD

# packages FOLDER NAME: builds the packages in FOLDER and keeps their checksums as NAME.
packages() {
  local kind file
  for kind in "${kinds[@]}"; do
    (cd "$1" && ./x package "$kind") | grep '^build-package/' | while read -r file; do
      (cd "$1/${file%/*}" && sha256sum "${file##*/}")
    done
  done >"$work/$2"
  [[ -s $work/$2 ]] || { echo "reproducible: nothing was built in $1" >&2 && exit 1; }
}
packages "$PWD" first
sleep 2
packages "$PWD" again
packages "$work/copy" elsewhere
for other in again elsewhere; do
  diff "$work/first" "$work/$other" || { echo "reproducible: built $other, the bytes differ" >&2 && exit 1; }
done
cat "$work/first"
echo "the same bytes, built twice and elsewhere"
