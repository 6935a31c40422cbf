#!/usr/bin/env bash
# Prevents: a package that lacks a program, that has files of the build folder or of Python's cache, that installs
# outside its own folders, that names the wrong version, that forgets the running service when it is upgraded or
# removed, or that differs from one build to the next.
# Nothing is compiled: /bin/true stands for every program. usage: deb_test.sh SOURCE_FOLDER [ARGS of cmake]
set -euo pipefail
source=$1
shift
for tool in cpack dpkg-deb dpkg-shlibdeps; do
  command -v "$tool" >/dev/null || { echo "SKIPPED: no $tool here (apt-get install dpkg-dev)" && exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=1700000000
umask 022 # as ./x package
fail() {
  echo "deb_test: $*" >&2
  tail -n 20 "$work/said" >&2
  exit 1
}

# build FOLDER ARGS: what a build leaves, and the packages of it.
build() {
  local folder=$1 file
  shift
  # The preset is that of `./x package`, which could switch a package off.
  cmake --preset package -S "$source" -B "$folder" -DCMAKE_SKIP_RPATH=ON "$@" >"$work/said" 2>&1 || fail "cmake does not configure"
  while read -r file; do
    mkdir -p "$(dirname "$file")"
    cp /bin/true "$file"
  done <"$folder/sluice_placed.txt"
  mkdir -p "$folder/share/man/man1"
  for file in sluice sluice-exec sluice-bench; do
    gzip -9nc >"$folder/share/man/man1/$file.1.gz" <<<".TH SLUICE 1"
  done
  (cd "$folder" && cpack --config CPackConfig.cmake) >"$work/said" 2>&1 || fail "cpack failed"
}
build "$work/one" "$@"
packages=$work/one/packages

version=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")
main=$packages/sluice_${version}_amd64.deb
lab=$packages/sluice-lab_${version}_amd64.deb
dev=$packages/sluice-dev_${version}_all.deb
for file in "$main" "$lab" "$dev"; do [[ -f $file ]] || fail "no ${file##*/} but: $(cd "$packages" && ls)"; done
[[ $(dpkg-deb -f "$main" Version) == "$version" ]] || fail "wrong version"
[[ $(dpkg-deb -f "$main" Depends) == *python3*libc6* ]] || fail "dependencies: $(dpkg-deb -f "$main" Depends)"

# files PACKAGE: a file that lists its files, without folders.
files() {
  local list=$work/${1##*/}.files
  [[ -e $list ]] || dpkg-deb -c "$1" | awk '$1 !~ /^d/ {print $6}' | sort >"$list"
  echo "$list"
}
has() { grep -qx "./usr/$1" "$(files "${2:-$main}")" || fail "$1 is missing"; }
while read -r file; do
  case ${file##*/} in
    spank_sluice.so) ;;
    sluice-opbench | sluice-compile | sluice-measure | sluice-operators | sluice-predict) has "${file#"$work/one/"}" "$lab" ;;
    *) has "${file#"$work/one/"}" ;;
  esac
done <"$work/one/sluice_placed.txt"
for file in libexec/sluice/sluice-{bench,sweep,programs,opbench-report,predict-report,predict-sharing} \
  share/man/man1/sluice-bench.1.gz share/sluice/predictor/devices.csv share/sluice/python/sluice_tools/sweep/plan.py; do
  has "$file" "$lab"
done
[[ -z $(comm -12 "$(files "$main")" "$(files "$lab")") ]] || fail "sluice and sluice-lab share files"
[[ $(dpkg-deb -f "$lab" Depends) == *"sluice (= $version)"* ]] || fail "sluice-lab depends on: $(dpkg-deb -f "$lab" Depends)"
for file in bin/sluice libexec/sluice/sluice-doctor share/sluice/python/sluice/asgi.py share/man/man1/sluice{,-exec}.1.gz \
  share/sluice/exp_configs/replay/input_device.json share/doc/sluice/copyright share/doc/sluice/docs/README.md \
  lib/systemd/system/sluice-node.service share/bash-completion/completions/sluice; do
  has "$file"
done
cat "$(files "$main")" "$(files "$lab")" >"$work/programs"
grep -E '__pycache__|\.pyc$|/build|/tests/' "$work/programs" >"$work/said" && fail "files that are not for users"
grep -vE '^\./usr/(bin/sluice$|libexec/sluice/|lib/sluice/|lib/systemd/system/sluice-node.service$|share/(sluice|man/man1|doc/sluice(-lab)?|bash-completion/completions|fish/vendor_completions.d|zsh/site-functions)/)' \
  "$work/programs" >"$work/said" && fail "files outside the folders of the package"
[[ $(xargs <"$(files "$dev")") == "./usr/include/sluice/sluice.h ./usr/share/doc/sluice-dev/changelog.gz ./usr/share/doc/sluice-dev/copyright" ]] ||
  fail "sluice-dev has: $(xargs <"$(files "$dev")")"
packages_made=("$main" "$lab" "$dev")
if g++ -E -x c - >/dev/null 2>&1 <<<'#include <slurm/spank.h>'; then
  slurm=$packages/sluice-slurm_${version}_amd64.deb
  packages_made+=("$slurm")
  [[ -f $slurm ]] || fail "no ${slurm##*/} but: $(cd "$packages" && ls)"
  [[ $(xargs <"$(files "$slurm")") == "./usr/lib/sluice/slurm/spank_sluice.so ./usr/libexec/sluice/slurm-epilog\
 ./usr/libexec/sluice/slurm-prolog ./usr/share/doc/sluice-slurm/changelog.gz ./usr/share/doc/sluice-slurm/copyright" ]] ||
    fail "sluice-slurm has: $(xargs <"$(files "$slurm")")"
  number=$(printf '#include <slurm/slurm_version.h>\nSLURM_VERSION_NUMBER\n' | g++ -E -P -x c - | tail -n 1)
  printf -v release '%d.%02d' $((number >> 16)) $((number >> 8 & 255))
  printf -v next '%d.%02d' $((number >> 16)) $(((number >> 8 & 255) + 1))
  needs="slurm-wlm-basic-plugins"
  [[ $(dpkg-deb -f "$slurm" Depends) == "sluice (= $version), $needs (>= $release), $needs (<< $next~), libc6 "* ]] ||
    fail "sluice-slurm depends on: $(dpkg-deb -f "$slurm" Depends)"
fi
# The pages, where a user of the package reads them.
dpkg-deb -x "$main" "$work/tree"
python3 "$source/tests/docs/check_links.py" --installed "$work/tree/usr/share/doc/sluice" >"$work/said" || fail "broken links"
zcat "$work/tree/usr/share/doc/sluice/changelog.gz" | dpkg-parsechangelog -l- -S Version >"$work/said" 2>&1 || true
grep -qx "$version" "$work/said" || fail "the changelog is not Debian's, or of another version"
if command -v lintian >/dev/null; then
  lintian --allow-root "${packages_made[@]}" >"$work/said" 2>&1 || fail "lintian finds errors"
fi

# The scripts of the package, with a systemctl that notes what it is asked, on a machine with systemd and one without.
mkdir -p "$work"/{control,bin,systemd}
dpkg-deb -e "$main" "$work/control"
printf '#!/bin/sh\necho "$*" >>%s/asked\n' "$work" >"$work/bin/systemctl"
chmod +x "$work/bin/systemctl"
# asked SCRIPT ARGS: what the script asks of systemctl, on one line. Nothing outside $work is touched.
asked() {
  local script=$1
  shift
  sed -E "s#/run/systemd/system#$work/systemd#; s# /(run|usr|var|etc)/# $work/\1/#g" "$work/control/$script" >"$work/script"
  mkdir -p "$work/usr/share/sluice/python" && : >"$work/asked"
  PATH=$work/bin:$PATH sh "$work/script" "$@" >"$work/said" 2>&1 || fail "$script $*"
  xargs <"$work/asked"
}
[[ $(asked postinst configure "") == daemon-reload ]] || fail "a first install starts something"
[[ $(asked postinst configure 0.1) == "daemon-reload try-restart sluice-node.service" ]] || fail "an upgrade restarts nothing"
[[ $(asked prerm remove) == "stop sluice-node.service" ]] || fail "a removal stops nothing"
[[ -z $(asked prerm upgrade 0.3) ]] || fail "an upgrade stops the service"
link=$work/etc/systemd/system/multi-user.target.wants/sluice-node.service
mkdir -p "${link%/*}" "$work/run/sluice" "$work/var/cache/sluice" && ln -s gone "$link"
[[ $(asked postrm remove) == daemon-reload && -L $link && -d $work/run/sluice ]] || fail "a removal purges"
[[ $(asked postrm purge) == daemon-reload && ! -L $link && ! -d $work/run/sluice && ! -d $work/var/cache/sluice ]] ||
  fail "a purge leaves files"
rmdir "$work/systemd"
[[ -z $(asked postinst configure 0.1)$(asked prerm remove)$(asked postrm purge) ]] || fail "systemctl without systemd"

for package in "${packages_made[@]}"; do
  dpkg-deb -c "$package" | grep -v ' root/root ' >"$work/said" && fail "files that do not belong to root"
  dpkg-deb -c "$package" | grep -vE '^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--) ' >"$work/said" && fail "odd permissions"
done

# Later, and from another folder.
sleep 1
build "$work/other/two" "$@"
for package in "${packages_made[@]}"; do
  cmp "$package" "$work/other/two/packages/${package##*/}" >"$work/said" 2>&1 || fail "${package##*/} differs"
done
echo "packaged"
