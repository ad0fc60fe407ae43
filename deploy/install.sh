#!/bin/sh
# Installs the archive of qwen-compiler that it lies in, in place of an earlier version.
#
#   install.sh [PREFIX]                 PREFIX is /usr/local for root and ~/.local for others
#   install.sh --uninstall [PREFIX]     removes what it installed; the cache of models stays
set -eu
version=@PROJECT_VERSION@
architecture=@CMAKE_SYSTEM_PROCESSOR@
glibc=2.34

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

#----------------------------------------------------------------------------------------
# What stands in the way
#----------------------------------------------------------------------------------------

is_older() { [ "${1%%.*}" -lt "${2%%.*}" ] || { [ "${1%%.*}" = "${2%%.*}" ] && [ "${1#*.}" -lt "${2#*.}" ]; }; }

check_machine() {
  machine=$(uname -m)
  [ "$(getconf LONG_BIT 2>/dev/null || echo 64)" = 64 ] || machine="$machine with 32 bits"
  [ "$machine" = "$architecture" ] ||
    fail "this archive is for Linux on $architecture, and this system is $machine; there are archives for x86_64 and aarch64 alone"
  libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || libc=
  [ -n "$libc" ] ||
    fail "this system has no glibc (musl?), and qwen-compiler needs glibc $glibc or newer; use a container of a distribution that has it"
  libc=${libc#glibc }
  ! is_older "$libc" "$glibc" ||
    fail "this system has glibc $libc, and qwen-compiler needs $glibc or newer (Debian 12, Ubuntu 22.04, RHEL 9); use a container of one of these"
}

# check_run FOLDER: fails unless the programs below the folder run. They say themselves
# what a processor lacks.
check_run() {
  for program in qwen-opt qwen-run; do
    status=0
    said=$("$1/bin/$program" --version 2>&1) || status=$?
    [ "$status" != 126 ] || fail "no program can run below $1, which is mounted with noexec; choose another folder"
    [ "$status" = 0 ] || fail "${said%%
*}"
  done
}

#----------------------------------------------------------------------------------------
# Installation
#----------------------------------------------------------------------------------------

# What an installation lists: its files, and the folders that it made, which end in /.
list() { echo "$prefix/share/doc/qwen-compiler/installed"; }

uninstall() {
  [ -f "$(list)" ] || return 0
  grep -v '/$' "$(list)" | while IFS= read -r file; do rm -f "$prefix/$file"; done
  # The deepest first. Others may have files there.
  folders=$(grep '/$' "$(list)" | sort -r)
  rm -f "$(list)"
  echo "$folders" | while IFS= read -r folder; do
    [ -z "$folder" ] || rmdir "$prefix/$folder" 2>/dev/null || true
  done
}

install() {
  uninstall
  cd "$here"
  folders=
  for folder in $(find . -mindepth 1 -type d | sort); do
    [ -d "$prefix/$folder" ] || folders="$folders$folder/
"
  done
  mkdir -p "$(dirname "$(list)")" 2>/dev/null && [ -w "$(dirname "$(list)")" ] ||
    fail "$prefix cannot be written; run this as root or give another PREFIX"
  files=$(find . ! -type d ! -path ./install.sh | sort)
  printf '%s\n%s' "$files" "$folders" >"$(list)"
  trap uninstall EXIT
  find . -mindepth 1 -type d | while IFS= read -r folder; do mkdir -p "$prefix/$folder"; done
  # A program that runs keeps its old file.
  echo "$files" | while IFS= read -r file; do
    rm -f "$prefix/$file"
    cp -P "$file" "$prefix/$file"
  done
  check_run "$prefix"
  trap - EXIT
}

command=install
if [ "${1:-}" = --uninstall ]; then
  command=uninstall
  shift
fi
case ${1:-} in -*) fail "unknown option $1; usage: install.sh [--uninstall] [PREFIX]" ;; esac
if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
prefix=${1:-$prefix}
here=$(cd "$(dirname "$0")" && pwd)

if [ $command = uninstall ]; then
  [ -f "$(list)" ] || fail "there is no qwen-compiler of an archive below $prefix; give the PREFIX of the installation"
  uninstall
  exit
fi
check_machine
check_run "$here"
install
echo "qwen-compiler $version is below $prefix; try: $prefix/bin/qwen-run MODEL"
first=$(command -v qwen-run || true)
[ "$first" = "$prefix/bin/qwen-run" ] || echo "PATH has ${first:-no qwen-run}; put $prefix/bin first in it" >&2
