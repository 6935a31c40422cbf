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
  need_for_programs
  need libgtest-dev "tests" have_header gtest/gtest.h
  need libgmock-dev "tests" have_header gmock/gmock.h
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

# setup_torch: fetches LibTorch for the worker that runs PyTorch models, and Python's torch for
# exporting models, unless .venv or python3 has it.
setup_torch() {
  has_torch .venv/bin/python3 && return
  has_torch python3 && return
  local venv_works='python3 -c "import venv, ensurepip" 2>/dev/null'
  need python3 "to fetch torch" have python3
  need python3-venv "to fetch torch into .venv" eval "$venv_works"
  # torchvision's operators need the shared library, which a distribution has in its own package.
  need libpython3-dev "the detection models of torchvision" has_libpython
  install_packages
  echo "x: fetching into .venv/ from PyPI: $(sed '/^#/d' cmake/torch-requirements.txt | xargs)" \
    "(4.7 GB on disk; two to three minutes)"
  if ! { python3 -m venv .venv &&
    .venv/bin/pip install --quiet --disable-pip-version-check -r cmake/torch-requirements.txt; }; then
    die "could not fetch torch, see the lines above; './x build' does without it"
  fi
}

# has_reports PYTHON: whether PYTHON has the packages of cmake/report-requirements.txt, in any
# version.
has_reports() {
  have "$1" && "$1" - 2>/dev/null <<'PYTHON'
import importlib.util as u, sys
wanted = (
    "numpy", "pandas", "pyarrow", "matplotlib", "plotly", "jinja2", "perfetto", "xgboost", "pytest", "xdist",
    "playwright",
)
sys.exit(not all(map(u.find_spec, wanted)))
PYTHON
}

# setup_reports: fetches the libraries of the report tools into .venv.
setup_reports() {
  has_reports .venv/bin/python3 && return
  local venv_works='python3 -c "import venv, ensurepip" 2>/dev/null'
  need python3 "for the report tools" have python3
  need python3-venv "to fetch the report tools into .venv" eval "$venv_works"
  install_packages
  echo "x: fetching into .venv/ from PyPI: $(sed '/^#/d' cmake/report-requirements.txt | xargs)" \
    "(860 MB on disk; one to two minutes)"
  if ! { python3 -m venv .venv &&
    .venv/bin/pip install --quiet --disable-pip-version-check -r cmake/report-requirements.txt; }; then
    die "could not fetch the report tools, see the lines above; './x build' does without them"
  fi
}

# has_programs PYTHON: whether PYTHON has the packages of cmake/programs-requirements.txt in these versions.
has_programs() {
  have "$1" && "$1" - cmake/programs-requirements.txt 2>/dev/null <<'PYTHON'
import importlib.metadata as m, sys
lines = [line.strip().split("==") for line in open(sys.argv[1]) if "==" in line]
sys.exit(not all(m.version(name) == version for name, version in lines))
PYTHON
}

# setup_programs: fetches TVM into .venv-tvm. A folder of its own, because TVM imports torch at its start, which takes
# seconds, wherever it finds torch.
setup_programs() {
  has_programs .venv-tvm/bin/python3 && return
  local venv_works='python3 -c "import venv, ensurepip" 2>/dev/null'
  need python3 "to fetch TVM" have python3
  need python3-venv "to fetch TVM into .venv-tvm" eval "$venv_works"
  install_packages
  echo "x: fetching into .venv-tvm/ from PyPI: $(sed '/^#/d' cmake/programs-requirements.txt | xargs)" \
    "(600 MB on disk; half a minute)"
  if ! { python3 -m venv .venv-tvm &&
    .venv-tvm/bin/pip install --quiet --disable-pip-version-check -r cmake/programs-requirements.txt; }; then
    die "could not fetch TVM, see the lines above; all but 'sluice programs' does without it"
  fi
}

# setup_clients: fetches the clients of cmake/client-requirements.txt into .venv.
setup_clients() {
  have .venv/bin/python3 && .venv/bin/python3 -c "import importlib.util as u, sys
sys.exit(not all(map(u.find_spec, ('tritonclient', 'grpc', 'geventhttpclient', 'pytest'))))" 2>/dev/null && return
  local venv_works='python3 -c "import venv, ensurepip" 2>/dev/null'
  need python3 "for the clients that test the model server" have python3
  need python3-venv "to fetch them into .venv" eval "$venv_works"
  install_packages
  echo "x: fetching into .venv/ from PyPI: $(sed '/^#/d' cmake/client-requirements.txt | xargs)" \
    "(90 MB on disk; half a minute)"
  if ! { python3 -m venv .venv &&
    .venv/bin/pip install --quiet --disable-pip-version-check -r cmake/client-requirements.txt; }; then
    die "could not fetch the clients, see the lines above; './x build' does without them"
  fi
}

# setup_mutate: fetches the parsers of ./x mutate into .venv.
setup_mutate() {
  have .venv/bin/python3 && .venv/bin/python3 -c "import tree_sitter, tree_sitter_cpp, tree_sitter_python" 2>/dev/null && return
  local venv_works='python3 -c "import venv, ensurepip" 2>/dev/null'
  need python3 "for the parsers of ./x mutate" have python3
  need python3-venv "to fetch them into .venv" eval "$venv_works"
  install_packages
  echo "x: fetching into .venv/ from PyPI: $(sed '/^#/d' cmake/mutate-requirements.txt | xargs) (6 MB on disk)"
  if ! { python3 -m venv .venv &&
    .venv/bin/pip install --quiet --disable-pip-version-check -r cmake/mutate-requirements.txt; }; then
    die "could not fetch the parsers, see the lines above"
  fi
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
  [[ $1 == deb ]] || need python3-venv "to fetch the tools of a wheel" eval 'python3 -c "import venv, ensurepip" 2>/dev/null'
  setup_build
  [[ $1 == deb || -x build-package/venv/bin/auditwheel ]] && return
  echo "x: fetching into build-package/venv/ from PyPI: $(sed '/^#/d' cmake/package-requirements.txt | xargs)"
  if ! { python3 -m venv build-package/venv &&
    build-package/venv/bin/pip install --quiet --disable-pip-version-check -r cmake/package-requirements.txt; }; then
    die "could not fetch the tools of a wheel, see the lines above"
  fi
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

# has_python_lint: whether .venv has the packages of cmake/lint-requirements.txt in these versions: other
# versions of ruff format the same code differently.
has_python_lint() {
  have .venv/bin/python3 && .venv/bin/python3 - cmake/lint-requirements.txt 2>/dev/null <<'PYTHON'
import importlib.metadata as m, sys
lines = [line.strip().split("==") for line in open(sys.argv[1]) if "==" in line]
sys.exit(not all(m.version(name.split("[")[0]) == version for name, version in lines))
PYTHON
}

# setup_python_lint: fetches ruff and pyright into .venv.
setup_python_lint() {
  has_python_lint && return
  local venv_works='python3 -c "import venv, ensurepip" 2>/dev/null'
  need python3 "for ruff and pyright" have python3
  need python3-venv "to fetch ruff and pyright into .venv" eval "$venv_works"
  install_packages
  echo "x: fetching into .venv/ from PyPI: $(sed '/^#/d' cmake/lint-requirements.txt | xargs)"
  if ! { python3 -m venv .venv &&
    .venv/bin/pip install --quiet --disable-pip-version-check -r cmake/lint-requirements.txt; }; then
    die "could not fetch ruff and pyright, see the lines above"
  fi
}
