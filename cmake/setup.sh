# shellcheck shell=bash
# Sourced by ./x: finds what the build needs and this machine lacks, and installs only that. The
# search is for files, not packages, so a cmake from pip or unpacked headers are enough. If nothing
# is missing, neither root nor a network is needed.

readonly kCmakeMin=3.25 kGccMin=12 kCudaMin=12040

have() { command -v "$1" >/dev/null 2>&1; }

have_header() {
  [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]] && return
  have g++ && g++ -E -x c++ - >/dev/null 2>&1 <<<"#include <$1>"
}

# version_at_least HAVE WANT
version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1) == "$2" ]]; }

# need PACKAGE REASON CHECK...: records the package as missing if the check fails.
missing_packages=() missing_reasons=()
need() {
  local package=$1 reason=$2
  shift 2
  "$@" && return
  missing_packages+=("$package")
  missing_reasons+=("$reason")
}

# want PACKAGE REASON CHECK...: the same for an optional package. It is installed together with
# missing packages, but is never a reason to ask for root or the network.
want() { ((${#missing_packages[@]} == 0)) || need "$@"; }

# install_packages: prints and installs the packages that `need` recorded.
install_packages() {
  ((${#missing_packages[@]})) || return 0
  local i as_root=() apt=(env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o DPkg::Lock::Timeout=300)
  echo "x: missing on this machine, to be installed with apt-get:"
  for i in "${!missing_packages[@]}"; do
    printf '     %-22s %s\n' "${missing_packages[i]}" "${missing_reasons[i]}"
  done
  have apt-get || die "no apt-get here: install the above with this system's package manager"
  if ((EUID != 0)); then
    have sudo || die "neither root nor sudo: run as root: apt-get install ${missing_packages[*]}"
    as_root=(sudo)
  fi
  "${as_root[@]}" "${apt[@]}" update </dev/null || die "apt-get update failed: see the lines above"
  "${as_root[@]}" "${apt[@]}" install --no-install-recommends "${missing_packages[@]}" \
    </dev/null >"${TMPDIR:-/tmp}/sluice-apt.$$" 2>&1 || {
    cat "${TMPDIR:-/tmp}/sluice-apt.$$" >&2
    rm -f "${TMPDIR:-/tmp}/sluice-apt.$$"
    die "apt-get install failed: see the lines above"
  }
  rm -f "${TMPDIR:-/tmp}/sluice-apt.$$"
  missing_packages=() missing_reasons=()
}

check_versions() {
  local cmake_version gcc_version
  cmake_version=$(cmake --version | sed -n '1s/.*version //p')
  version_at_least "$cmake_version" "$kCmakeMin" ||
    die "cmake $cmake_version is too old: $kCmakeMin or later is needed (pip install cmake has it)"
  gcc_version=$(g++ -dumpfullversion)
  version_at_least "$gcc_version" "$kGccMin" ||
    die "g++ $gcc_version is too old: $kGccMin or later is needed (for C++20)"
}

# Prints the folder of a cuda.h that is new enough. Fails if there is none.
find_cuda_headers() {
  local dir version nvcc=
  have nvcc && nvcc=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
  for dir in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda "$nvcc" "$PWD/.cuda/nvidia/cu13" /usr; do
    [[ -n $dir && -r $dir/include/cuda.h ]] || continue
    version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$dir/include/cuda.h" | head -n1)
    ((${version:-0} >= kCudaMin)) && echo "$dir/include" && return
  done
  return 1
}

# Fetches headers and CUPTI. The driver is loaded at run time.
fetch_cuda_headers() {
  local pip_works='python3 -m pip --version >/dev/null 2>&1'
  need python3 "to unpack cuda.h" have python3
  need python3-pip "to fetch cuda.h (no CUDA toolkit 12.4 or later found)" eval "$pip_works"
  install_packages
  echo "x: fetching cuda.h into .cuda/ from PyPI: $(sed '/^#/d;s/ .*//' cmake/cuda-headers.txt | xargs)"
  local work wheel
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # the name must expand now
  trap "rm -rf '$work'" EXIT
  python3 -m pip download --quiet --no-deps --only-binary :all: --require-hashes \
    --platform manylinux2014_x86_64 --platform manylinux_2_25_x86_64 -d "$work" -r cmake/cuda-headers.txt ||
    die "could not fetch the CUDA headers; set CUDA_HOME to a CUDA toolkit of 12.4 or later instead"
  for wheel in "$work"/*.whl; do python3 -m zipfile -e "$wheel" "$work/unpacked"; done
  mkdir -p .cuda/nvidia/cu13/lib
  cp -r "$work/unpacked/nvidia/cu13/include" .cuda/nvidia/cu13/
  cp "$work/unpacked/nvidia/cu13/lib/libcupti.so.13" .cuda/nvidia/cu13/lib/
  rm -rf "$work"
  trap - EXIT
}

# The packages that a build of the programs needs.
need_for_programs() {
  need g++ "the compiler" have g++
  need cmake "the build system, $kCmakeMin or later" have cmake
  need ninja-build "runs the build" have ninja
  need libboost-dev "Boost.Interprocess: shared memory" have_header boost/version.hpp
  need libspdlog-dev "logs of the controller" have_header spdlog/spdlog.h
  need nlohmann-json3-dev "experiment files" have_header nlohmann/json.hpp
  need libcli11-dev "command lines" have_header CLI/CLI.hpp
  need python3 "the measuring tools" have python3
}

# Sets cuda_include for ./x.
# shellcheck disable=SC2034
install_for_build() {
  if ! cuda_include=$(find_cuda_headers); then
    fetch_cuda_headers
    cuda_include=$(find_cuda_headers) || die "cuda.h is not in the wheel of cmake/cuda-headers.txt"
  fi
  install_packages
  check_versions
}

# setup_demo: installs the needs of the build for `./x demo`. Sets cuda_include for ./x.
setup_demo() {
  need_for_programs
  install_for_build
}

# setup_build: the same for a build of everything.
setup_build() {
  need libgtest-dev "tests" have_header gtest/gtest.h
  need libgmock-dev "tests" have_header gmock/gmock.h
  setup_all_programs
}

setup_all_programs() {
  need_for_programs
  need libgrpc++-dev "the model server" have_header grpcpp/grpcpp.h
  need protobuf-compiler-grpc "the model server's protocol" have grpc_cpp_plugin
  need libprotobuf-dev "messages of that protocol" have_header google/protobuf/message.h
  need zlib1g-dev "compressed requests to the model server" have_header zlib.h
  need liblzma-dev "packs of tensor programs" have_header lzma.h
  want libxgboost-dev "tuners with XGBoost" have_header xgboost/c_api.h
  want libslurm-dev "the plugin for Slurm" have_header slurm/spank.h
  want libncurses-dev "the live view of sluice top" have_header ncursesw/curses.h
  install_for_build
}

# has_torch PYTHON: whether PYTHON has the packages of cmake/torch-requirements.txt, with torch in
# the required version. Does not import them, which takes seconds.
has_torch() {
  have "$1" && "$1" - 2>/dev/null <<'PYTHON'
import importlib.metadata as m, sys
sys.exit(not (m.version("torch").startswith("2.11.") and m.version("torchvision")
             and m.version("pytest")))
PYTHON
}

# has_listed LIST PYTHON [any]: whether PYTHON has the packages of cmake/LIST-requirements.txt, in these versions or in
# any.
has_listed() {
  have "$2" && "$2" - "cmake/$1-requirements.txt" "${3:-}" 2>/dev/null <<'PYTHON'
import importlib.metadata as m, sys
wanted = [line.strip().split("==") for line in open(sys.argv[1]) if "==" in line]
found = [(m.version(name.split("[")[0]), version) for name, version in wanted]
sys.exit(not (sys.argv[2] or all(has == version for has, version in found)))
PYTHON
}

# fetch_venv LIST FOLDER WHAT [SIZE] [WITHOUT]: fetches the packages of cmake/LIST-requirements.txt into a virtual
# environment. WITHOUT says what works where that fails.
fetch_venv() {
  local list=cmake/$1-requirements.txt folder=$2 what=$3 size=${4:-} without=${5:-}
  need python3 "to fetch $what" have python3
  need python3-venv "to fetch $what into $folder" eval 'python3 -c "import venv, ensurepip" 2>/dev/null'
  install_packages
  echo "x: fetching into $folder/ from PyPI: $(sed '/^#/d' "$list" | xargs)${size:+ ($size)}"
  if ! { python3 -m venv "$folder" && "$folder/bin/pip" install --quiet --disable-pip-version-check -r "$list"; }; then
    die "could not fetch $what, see the lines above${without:+; $without}"
  fi
}

# setup_torch: LibTorch for the worker that runs PyTorch models, and Python's torch for exporting models, unless .venv
# or python3 has it.
setup_torch() {
  has_torch .venv/bin/python3 && return
  has_torch python3 && return
  need python3 "to fetch torch" have python3
  # torchvision's operators need the shared library, which a distribution has in its own package.
  need libpython3-dev "the detection models of torchvision" has_libpython
  fetch_venv torch .venv torch "4.7 GB on disk; two to three minutes" "'./x build' does without it"
}

setup_reports() {
  has_listed report .venv/bin/python3 any ||
    fetch_venv report .venv "the report tools" "790 MB on disk; one to two minutes" "'./x build' does without them"
}

# setup_programs: TVM, into a folder of its own, because it imports torch at its start, which takes seconds, wherever it
# finds torch.
setup_programs() {
  has_listed programs .venv-tvm/bin/python3 ||
    fetch_venv programs .venv-tvm TVM "600 MB on disk; half a minute" "all but 'sluice programs' does without it"
}

# setup_clients: of other projects, to test the model server with.
setup_clients() {
  has_listed client .venv/bin/python3 any ||
    fetch_venv client .venv "the clients that test the model server" "90 MB on disk; half a minute" \
      "'./x build' does without them"
}

setup_mutate() {
  has_listed mutate .venv/bin/python3 any || fetch_venv mutate .venv "the parsers of ./x mutate" "6 MB on disk"
}

# setup_browser: for the test that opens a report. Installs only Debian's package. Ubuntu's package
# is a snap and needs a running snapd, so there the test is skipped unless a Chromium or Chrome is
# installed.
setup_browser() {
  local program
  for program in chromium chromium-browser google-chrome; do
    have "$program" && return
  done
  grep -qx 'ID=debian' /etc/os-release 2>/dev/null || return 0
  need chromium "opens a report in a test" false
  need fonts-dejavu-core "text in that report" false
  install_packages
}

# setup_clusters: a cluster of Slurm and containers, in which some tests run. Those tests skip without them.
setup_clusters() {
  grep -qx 'ID=debian' /etc/os-release 2>/dev/null && { ((EUID == 0)) || have sudo; } || return 0
  need slurm-wlm "a cluster of one node, in tests" have slurmctld
  need munge "authentication of that cluster" have munged
  need podman "containers, in tests" have podman
  need crun "runs those containers" have crun
  install_packages
}

# setup_package deb|wheel: what a package needs in addition to a build.
setup_package() {
  [[ $1 == wheel ]] || need dpkg-dev "the libraries that a package depends on" have dpkg-shlibdeps
  [[ $1 == wheel ]] || need libslurm-dev "the package sluice-slurm" have_header slurm/spank.h
  need libncurses-dev "the live view of sluice top" have_header ncursesw/curses.h
  setup_all_programs
  [[ $1 == deb || -x build-package/venv/bin/auditwheel ]] && return
  fetch_venv package build-package/venv "the tools of a wheel"
}

has_libpython() {
  python3 - 2>/dev/null <<'PYTHON'
import ctypes, sysconfig
v = sysconfig.get_config_var
try:
    ctypes.CDLL(f"{v('LIBDIR')}/{v('INSTSONAME')}")
except OSError:
    ctypes.CDLL(v("INSTSONAME"))
PYTHON
}

setup_bench() { need libbenchmark-dev "benchmarks" have_header benchmark/benchmark.h; }

# Only version 14 of clang-format: other versions format the same code differently.
setup_lint() {
  need clang-format-14 "format check" have clang-format-14
  need clang-tidy "static analysis" have clang-tidy
  need shellcheck "shell scripts" have shellcheck
  need git "names the files to check" have git
  setup_python_lint
}

# setup_python_lint: ruff and pyright, in these versions: other versions of ruff format the same code differently.
setup_python_lint() {
  has_listed lint .venv/bin/python3 || fetch_venv lint .venv "ruff and pyright"
}
