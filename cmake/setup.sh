#!/bin/sh
# Installs missing dependencies of the build, with the argument "tests" also those
# of the tests, and with "web" those of the page alone: Debian packages, and a virtual environment in .venv for the few
# packages that Debian lacks. Does nothing if all are installed. Prints to
# standard error only.
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

stamp=.venv/requirements.txt
python_packages() {
  cmp -s cmake/requirements.txt "$stamp" && return
  echo "== install Python packages in .venv (cmake/requirements.txt; Halide, which makes kernels, is the largest)"
  rm -rf .venv
  python3 -m venv .venv
  # shellcheck disable=SC2086
  .venv/bin/pip install $pip_options --disable-pip-version-check -r cmake/requirements.txt
  cp cmake/requirements.txt "$stamp"
}
# Beside Debian's packages, if Python has what it needs and no terminal shows the
# progress of both.
python_job=
if [ ! -t 2 ] && [ "${1:-}" != web ] && python3 -c 'import ensurepip' 2>/dev/null; then
  python_packages &
  python_job=$!
fi

packages="libmlir-22-dev mlir-22-tools llvm-22-dev llvm-22-tools clang-22 clang-tidy-22 clang-format-22 lld-22
  liblld-22-dev libclang-rt-22-dev nlohmann-json3-dev libboost1.81-dev libcli11-dev libssl-dev libutf8proc-dev libutf8proc-dev:arm64 libxxhash-dev libre2-dev libre2-dev:arm64
  libminizip-dev libminizip-dev:arm64 libbz2-dev libbz2-dev:arm64 zlib1g-dev zlib1g-dev:arm64 libedit-dev libedit-dev:arm64
  googletest g++-aarch64-linux-gnu qemu-user-static ccache ninja-build pkgconf dpkg-dev python3-venv"
[ "${1:-}" != tests ] || packages="$packages tmux zsh fish mandoc chromium"
# Grammars of the server; another Rust serves as well (cmake/QwenGrammar.cmake).
[ "${1:-}" != tests ] || command -v cargo >/dev/null || packages="$packages cargo-web rustc-web"
# The same on AArch64, which takes minutes to compile, and bench-kernels: make test-full only.
[ -z "${QWEN_TEST_FULL:-}" ] || packages="$packages cargo-web rustc-web libstd-rust-web-dev:arm64 libbenchmark-dev"
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
if [ -n "$missing" ]; then
  echo "== install Debian packages (LLVM and MLIR are large, so the download takes minutes):$missing"
  sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  dpkg --print-foreign-architectures | grep -qx arm64 || $sudo dpkg --add-architecture arm64
  $sudo apt-get update -qq
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install $apt_options --no-install-recommends $missing
fi

[ "${1:-}" != web ] || exit 0
if [ -n "$python_job" ]; then
  wait "$python_job"
else
  python_packages
fi
# Halide's CMake package by a path without Python's version, for CMakePresets.json.
ln -sfn "$(cd .venv && echo lib/python3.*/site-packages/halide)" .venv/halide
