#!/bin/sh
# Installs what the build lacks; with the argument "tests" also what the tests lack, with
# "arm" what a compiler for AArch64 lacks (preset aarch64-compiler), and with "web" what the
# page alone lacks: Debian packages, and a virtual environment in .venv for the few packages
# that Debian lacks. Does nothing if all are installed. Prints to standard error
# only. What it cannot do, it says in one line: before it starts, or as soon as a registry
# does not answer.
# A terminal sees the progress of apt-get and pip; elsewhere no line is rewritten.
set -eu
cd "$(dirname "$0")/.."
exec >&2
apt_options="-y -qq -o Dpkg::Use-Pty=0"
pip_options="-q --progress-bar off"
if [ -t 2 ]; then
  apt_options=-y
  pip_options=
fi

python_job=
fail() {
  echo "make: $1"
  [ -z "$python_job" ] || kill "$python_job" 2>/dev/null || true
  exit 1
}

# require_space FOLDER MIB WHAT: stops where the disk of a folder has less free space.
require_space() {
  free=$(df -Pm "$1" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$2" ] || fail "the disk of $1 has $free MiB free, and $3 need $2 MiB"
}
is_same_disk() { [ "$(df -P "$1" | tail -n 1)" = "$(df -P "$2" | tail -n 1)" ]; }

#----------------------------------------------------------------------------------------
# What is missing
#----------------------------------------------------------------------------------------

command -v dpkg-query >/dev/null || fail "the system is not Debian (it has no dpkg-query); install the packages that cmake/setup.sh names and the Python packages of cmake/requirements.txt in .venv"

# libstdc++ of AArch64 has the headers of code that qwen-opt compiles for Arm.
packages="libmlir-22-dev mlir-22-tools llvm-22-dev llvm-22-tools clang-22 lld-22 liblld-22-dev nlohmann-json3-dev libboost1.81-dev
  libcli11-dev libssl-dev libutf8proc-dev libxxhash-dev libre2-dev libminizip-dev libbz2-dev zlib1g-dev libedit-dev libzmq3-dev
  libstdc++-12-dev-arm64-cross ccache ninja-build pkgconf dpkg-dev python3-venv zstd"
arm64="g++-aarch64-linux-gnu qemu-user-static libutf8proc-dev:arm64 libre2-dev:arm64 libminizip-dev:arm64 libbz2-dev:arm64
  zlib1g-dev:arm64 libedit-dev:arm64 libssl-dev:arm64"
rust_arm64="cargo-web rustc-web libstd-rust-web-dev:arm64"
if [ "${1:-}" = arm ]; then
  packages="$packages $arm64 $rust_arm64 libzstd-dev:arm64"
elif [ "${1:-}" = tests ]; then
  packages="$packages $arm64 clang-tidy-22 clang-format-22 libclang-rt-22-dev googletest tmux zsh fish mandoc chromium"
  # Grammars of the server; another Rust serves as well (cmake/QwenGrammar.cmake).
  command -v cargo >/dev/null || packages="$packages cargo-web rustc-web"
fi
# The same on AArch64, which takes minutes to compile, and bench-kernels: make test-full only.
[ -z "${QWEN_TEST_FULL:-}" ] || packages="$packages $rust_arm64 libbenchmark-dev"
[ "${1:-}" != web ] || packages=
# Node of other sources than Debian has npm in the same package.
[ -z "${1:-}" ] || command -v npm >/dev/null || packages="$packages nodejs npm"

missing=
native=$(dpkg --print-architecture)
for package in $packages; do
  architecture=${package#*:}
  [ "$architecture" != "$package" ] || architecture=$native
  # A package of two architectures has a line of each.
  dpkg-query -W -f '${Architecture} ${db:Status-Abbrev}\n' "$package" 2>/dev/null | grep -Eqx "($architecture|all) ii " ||
    missing="$missing $package"
done

stamp=.venv/requirements.txt
needs_python=
[ "${1:-}" = web ] || cmp -s cmake/requirements.txt "$stamp" || needs_python=yes

#----------------------------------------------------------------------------------------
# What stands in the way
#----------------------------------------------------------------------------------------

sudo=
if [ -n "$missing" ]; then
  command -v apt-get >/dev/null || fail "the system has no apt-get; install these packages another way:$missing"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "only root can install packages, and sudo is missing; let root run \"make setup\" here, or install$missing"
    # A terminal asks for the password.
    [ -t 0 ] || sudo -n true 2>/dev/null || fail "only root can install packages, and sudo asks for a password; run make in a terminal, or install$missing"
    sudo=sudo
  fi
fi
# In MiB: what apt-get tells with the archives, 424 of .venv and 171 of build. Of a few
# packages apt-get tells the space itself.
package_space=0
case $missing in *libmlir-22-dev*) package_space=2400 ;; esac
[ "$package_space" = 0 ] || [ "${1:-}" != tests ] || package_space=4000
own_space=0
[ -z "$needs_python" ] || own_space=700
[ "${1:-}" != arm ] || [ -e build/llvm-aarch64/version ] || own_space=$((own_space + 1000))
if is_same_disk /usr .; then
  require_space . $((package_space + own_space)) "packages, .venv and build"
else
  require_space /usr "$package_space" "packages"
  require_space . "$own_space" ".venv and build"
fi

#----------------------------------------------------------------------------------------
# Installation
#----------------------------------------------------------------------------------------

# require WHAT LOG COMMAND...: runs a command. If it fails, says what is missing with the
# last error of the log that it writes.
require() {
  what=$1 log=$2
  shift 2
  status=0
  "$@" 2>"$log" || status=$?
  [ "$status" = 0 ] || fail "$what: $(grep -E '^(E:|ERROR|error)' "$log" | tail -n 1 | cut -c 1-300)"
}

python_packages() {
  [ -n "$needs_python" ] || return 0
  echo "== install Python packages in .venv (cmake/requirements.txt; Halide, which makes kernels, is the largest)"
  rm -rf .venv
  python3 -m venv .venv
  # shellcheck disable=SC2086
  require "the Python packages of cmake/requirements.txt cannot be installed from their registry" .venv/errors \
    .venv/bin/pip install $pip_options --retries 1 --timeout 60 --disable-pip-version-check -r cmake/requirements.txt
  cp cmake/requirements.txt "$stamp"
}

# LLVM and MLIR for AArch64 in build/llvm-aarch64: archives, and the one header that differs
# from the host's. Debian's packages of two architectures do not install side by side.
llvm_for_arm() {
  folder=build/llvm-aarch64
  version=$(dpkg-query -W -f '${Version}' llvm-22-dev)
  [ "$(cat $folder/version 2>/dev/null)" != "$version" ] || return 0
  echo "== unpack LLVM and MLIR for AArch64 in $folder"
  rm -rf $folder
  mkdir -p $folder/packages $folder/include
  for package in llvm-22-dev libmlir-22-dev liblld-22; do
    (cd $folder/packages && require "Debian's package $package of arm64 cannot be fetched" ../errors \
      apt-get download -qq $network "$package:arm64=$version")
    dpkg-deb --fsys-tarfile $folder/packages/"$package"_* |
      tar -x -C $folder --strip-components=4 --wildcards './usr/lib/llvm-22/lib/*.a'
  done
  dpkg-deb --fsys-tarfile $folder/packages/llvm-22-dev_* |
    tar -x -C $folder/include --strip-components=4 ./usr/include/llvm-22/llvm/Config/llvm-config.h
  rm -r $folder/packages
  echo "$version" >$folder/version
}

# Beside Debian's packages, if Python has what it needs and no terminal shows the
# progress of both.
if [ ! -t 2 ] && [ "${1:-}" != web ] && python3 -c 'import ensurepip' 2>/dev/null; then
  python_packages &
  python_job=$!
fi

# A registry that does not answer must not take minutes.
network="-o Acquire::Retries=1 -o Acquire::http::Timeout=30"
if [ -n "$missing" ]; then
  echo "== install Debian packages (LLVM and MLIR are large, so the download takes minutes):$missing"
  errors=$(mktemp)
  trap 'rm -f "$errors"' EXIT
  case $missing in
  *:arm64*) dpkg --print-foreign-architectures | grep -qx arm64 || $sudo dpkg --add-architecture arm64 ;;
  esac
  # shellcheck disable=SC2086
  require "Debian's lists of packages cannot be fetched" "$errors" $sudo apt-get update -qq $network -o APT::Update::Error-Mode=any
  # shellcheck disable=SC2086
  require "Debian packages cannot be installed" "$errors" \
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install $apt_options $network --no-install-recommends $missing
fi

[ "${1:-}" != web ] || exit 0
[ "${1:-}" != arm ] || llvm_for_arm
if [ -n "$python_job" ]; then
  wait "$python_job"
else
  python_packages
fi
# Halide's CMake package by a path without Python's version, for CMakePresets.json.
ln -sfn "$(cd .venv && echo lib/python3.*/site-packages/halide)" .venv/halide
