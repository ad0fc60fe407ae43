#!/bin/sh
# Installs missing dependencies of the build: Debian packages, and a virtual
# environment in .venv for the few packages that Debian lacks. Does nothing if
# all are installed. Prints to standard error only.
set -eu
cd "$(dirname "$0")/.."
exec >&2

packages="libmlir-22-dev mlir-22-tools llvm-22-dev llvm-22-tools clang-22 clang-tidy-22 clang-format-22 lld-22
  liblld-22-dev libclang-rt-22-dev nlohmann-json3-dev libboost1.81-dev libcli11-dev libssl-dev libutf8proc-dev libutf8proc-dev:arm64 libxxhash-dev libre2-dev
  googletest g++-aarch64-linux-gnu qemu-user-static ccache ninja-build python3-venv"

missing=
for package in $packages; do
  status=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
  [ "$status" = "ii " ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
  sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  dpkg --print-foreign-architectures | grep -qx arm64 || $sudo dpkg --add-architecture arm64
  $sudo apt-get update -qq
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing
fi

stamp=.venv/requirements.txt
if ! cmp -s cmake/requirements.txt "$stamp"; then
  rm -rf .venv
  python3 -m venv .venv
  .venv/bin/pip install -q --disable-pip-version-check -r cmake/requirements.txt
  cp cmake/requirements.txt "$stamp"
fi
# Halide's CMake package by a path without Python's version, for CMakePresets.json.
ln -sfn "$(cd .venv && echo lib/python3.*/site-packages/halide)" .venv/halide
