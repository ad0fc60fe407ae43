"""install.sh of an archive: what it installs and removes, and its errors.

  archive_install.py ARCHIVE WORKDIR
"""
import os
import pathlib
import shutil
import subprocess
import sys

from archive_roots import enter
from checks import Checks, matches

ARCHIVE, WORK = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
enter()
checks = Checks()
TREE, PREFIX, NOEXEC, FAKES = WORK / "tree", WORK / "prefix", WORK / "noexec", WORK / "fakes"
NEEDS = "qwen-compiler needs {{(glibc )?}}2.34 or newer"


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()}


def install(*arguments, folder=TREE, status=0, programs={}):
    """Standard output and error; `programs` are texts of programs that take the place of the system's."""
    shutil.rmtree(FAKES, ignore_errors=True)
    FAKES.mkdir()
    for name, text in programs.items():
        (FAKES / name).write_text(f"#!/bin/sh\n{text}\n")
        (FAKES / name).chmod(0o755)
    done = subprocess.run(["sh", folder / "install.sh", *map(str, arguments)], capture_output=True, text=True, env=os.environ | {
        "PATH": f"{FAKES}:/usr/bin:/bin", "HOME": str(WORK / "home")})
    checks.expect(f"status of {arguments} with {programs}", done.returncode, status)
    return done.stdout, done.stderr


def expect_error(message, *arguments, folder=TREE, left=(), **programs):
    out, err = install(*arguments, folder=folder, status=1, programs=programs)
    checks.check(matches(f"install.sh: {message}\n", err) and not out, f"{arguments} with {programs} says {err!r}, not {message!r}")
    checks.expect(f"what {arguments} with {programs} leaves", [str(path) for path in PREFIX.rglob("*")], list(left))


def check_errors():
    other = "this archive is for Linux on x86_64, and this system is {}; there are archives for x86_64 and aarch64 alone"
    expect_error(other.format("armv7l"), PREFIX, uname="echo armv7l")
    expect_error(other.format("aarch64 with 32 bits"), PREFIX, uname="echo aarch64", getconf="echo 32")
    expect_error(f"this system has no glibc (musl?), and {NEEDS}; use a container of a distribution that has it", PREFIX, getconf="exit 1")
    for version in ("2.31", "1.99", "2.4"):
        expect_error(f"this system has glibc {version}, and {NEEDS} (Debian 12, Ubuntu 22.04, RHEL 9); use a container of one of these", PREFIX,
                     getconf=f'case $1 in LONG_BIT) echo 64;; *) echo "glibc {version}";; esac')
    expect_error(f"there is no qwen-compiler of an archive below {PREFIX}; give the PREFIX of the installation", "--uninstall", PREFIX)
    expect_error("unknown option --prefix; usage: install.sh [--uninstall] [PREFIX]", "--prefix", PREFIX)
    (WORK / "file").touch()
    expect_error(f"{WORK}/file/qwen cannot be written; run this as root or give another PREFIX", WORK / "file/qwen")
    # A folder whose programs do not run, to install to and to install from.
    NOEXEC.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", NOEXEC], check=True)
    noexec = "no program can run below {}, which is mounted with noexec; choose another folder"
    expect_error(noexec.format(NOEXEC / "qwen"), NOEXEC / "qwen")
    checks.expect("what is left in the folder without programs", files(NOEXEC), set())
    shutil.copytree(TREE, NOEXEC / "tree", symlinks=True)
    expect_error(noexec.format(NOEXEC / "tree"), PREFIX, folder=NOEXEC / "tree")
    subprocess.run(["umount", NOEXEC], check=True)


def check_processor():
    """An old processor, emulated: install.sh says what qwen-opt says."""
    qemu, program = shutil.which("qemu-x86_64-static"), TREE / "bin/qwen-opt"
    if not qemu:
        return
    program.rename(WORK / "qwen-opt")
    program.write_text(f"#!/bin/sh\nexec {qemu} -cpu Nehalem {WORK}/qwen-opt \"$@\"\n")
    program.chmod(0o755)
    expect_error("qwen-opt: this CPU lacks avx2, fma, f16c, which qwen-opt and the models that it compiles for this architecture need; use another "
                 "machine", PREFIX)
    (WORK / "qwen-opt").rename(program)


def check_installation():
    PREFIX.mkdir()
    (PREFIX / "bin").mkdir()
    (PREFIX / "bin/other").touch()
    out, err = install(PREFIX)
    checks.check(matches(f"qwen-compiler {{{{.*}}}} is below {PREFIX}; try: {PREFIX}/bin/qwen-run MODEL\n", out), f"an installation says {out!r}")
    checks.expect("its advice", err, f"PATH has no qwen-run; put {PREFIX}/bin first in it\n")
    listed = "share/doc/qwen-compiler/installed"
    ours = files(TREE) - {"install.sh"}
    wanted = ours | {listed, "bin/other"}
    checks.expect("what is installed", files(PREFIX), wanted)
    for name in sorted(ours):
        checks.check((PREFIX / name).read_bytes() == (TREE / name).read_bytes(), f"{name} is another file")
    # A newer version without one of the files.
    with open(PREFIX / listed, "a") as list_file:
        list_file.write("./bin/qwen-old\n")
    (PREFIX / "bin/qwen-old").touch()
    install(PREFIX)
    checks.expect("what a second version leaves", files(PREFIX), wanted)
    subprocess.run(["sh", PREFIX / "share/doc/qwen-compiler/install.sh", "--uninstall", PREFIX], check=True)
    checks.expect("what is left", [str(path.relative_to(PREFIX)) for path in PREFIX.rglob("*")], ["bin", "bin/other"])


subprocess.run(["tar", "--zstd", "-xf", ARCHIVE, "-C", WORK], check=True)
next(WORK.glob("qwen-compiler-*")).rename(TREE)
check_errors()
check_processor()
check_installation()
checks.finish()
