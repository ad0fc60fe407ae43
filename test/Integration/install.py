"""The installed tree and the Debian package have the same files, nothing of the build's machine, and all that a program needs.

  install.py SOURCE BUILD MODEL WORKDIR
"""
import os
import pathlib
import re
import subprocess
import sys

from checks import Checks, run

SOURCE, BUILD, MODEL, WORK = (pathlib.Path(a).resolve() for a in sys.argv[1:5])
# The cmake of .venv, as in the Makefile.
TOOLS = pathlib.Path(sys.executable).parent
COMPILER = "/usr/lib/llvm-22/bin/clang"
checks = Checks()
expect = checks.expect
FILES = """bin/qwen-opt bin/qwen-run include/qwenrt.h include/qwenrt_parser.h include/qwenrt_scheduler.h include/qwenrt_weights.h lib/libqwenrt.so lib/libqwenrt.so.0 lib/libqwenrt.so.{version}
    lib/cmake/qwenrt/qwenrtConfig.cmake lib/cmake/qwenrt/qwenrtConfig-release.cmake lib/cmake/qwenrt/qwenrtConfigVersion.cmake
    lib/pkgconfig/qwenrt.pc
    share/man/man1/qwen-run.1 share/bash-completion/completions/qwen-run share/zsh/{zsh}/_qwen-run
    share/man/man1/qwen-opt.1 share/bash-completion/completions/qwen-opt share/zsh/{zsh}/_qwen-opt
    share/fish/vendor_completions.d/qwen-run.fish share/fish/vendor_completions.d/qwen-opt.fish"""


def files(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir() or p.is_symlink()}


def installed():
    """Another prefix than that of the configuration, below DESTDIR."""
    run([TOOLS / "cmake", "--install", BUILD, "--prefix", "/opt/qwen", "--strip"], env=os.environ | {"DESTDIR": str(WORK / "root")})
    expect("what lies beside the prefix", [p.name for p in (WORK / "root").iterdir()], ["opt"])
    return WORK / "root/opt/qwen"


def package(version):
    """The files of the Debian package, whose control data are right."""
    run([TOOLS / "cpack", "--config", BUILD / "CPackConfig.cmake", "-B", WORK / "deb"])
    architecture = run(["dpkg", "--print-architecture"]).strip()
    deb = WORK / f"deb/qwen-compiler_{version}_{architecture}.deb"
    fields = dict(re.findall(r"^(\S+): (.*)", run(["dpkg-deb", "-f", deb]), re.M))
    expect("fields", {key: fields.get(key) for key in ("Package", "Version", "Architecture", "Priority", "Section")},
           {"Package": "qwen-compiler", "Version": version, "Architecture": architecture, "Priority": "optional", "Section": "science"})
    checks.check(re.fullmatch(r".+ <\S+@\S+>", fields["Maintainer"]), f"the maintainer is {fields['Maintainer']}")
    # archive_elf.py reads what the programs need.
    expect("dependencies", fields["Depends"], "libc6 (>= 2.34), libgcc-s1")
    lines = run(["dpkg-deb", "-f", deb, "Description"]).splitlines()
    checks.check(len(lines) > 1 and all(len(line) <= 80 for line in lines), f"the description is {lines}")
    expect("shlibs", run(["dpkg-deb", "-I", deb, "shlibs"]).split(), ["libqwenrt", "0", "qwen-compiler", "(=", f"{version})"])
    checks.check("ldconfig" in run(["dpkg-deb", "-I", deb, "triggers"]), "the package does not call ldconfig")
    for line in run(["dpkg-deb", "-c", deb]).splitlines():
        mode, owner = line.split()[:2]
        program = "/usr/bin/" in line and not line.endswith("/")
        wanted = "drwxr-xr-x" if mode[0] == "d" else "lrwxrwxrwx" if mode[0] == "l" else "-rwxr-xr-x" if program else "-rw-r--r--"
        expect(line, (mode, owner), (wanted, "root/root"))
    run(["dpkg-deb", "-x", deb, WORK / "deb/root"])
    return WORK / "deb/root/usr"


def no_build_paths(tree):
    """Assertions of LLVM's headers have the names of their types, and so the place of a lambda: a function has a name instead."""
    for name in sorted(files(tree)):
        data = (tree / name).read_bytes()
        found = {match.decode() for path in (SOURCE, BUILD, WORK) for match in re.findall(re.escape(bytes(path)) + rb"[\w./-]*", data)}
        checks.check(not found, f"{name} names {found}")
    for program in ("qwen-opt", "qwen-run"):
        checks.check("not found" not in run(["ldd", tree / "bin" / program]), f"{program} lacks a library")


def texts(tree):
    """Completions and manual pages are what the programs print."""
    for program in ("qwen-run", "qwen-opt"):
        for name, arguments in ((f"man/man1/{program}.1", ["man"]), (f"bash-completion/completions/{program}", ["completion", "bash"]),
                                (f"zsh/vendor-completions/_{program}", ["completion", "zsh"]),
                                (f"fish/vendor_completions.d/{program}.fish", ["completion", "fish"])):
            expect(name, (tree / "share" / name).read_text(), run([tree / "bin" / program, *arguments]))


def programs(tree):
    """The examples, built by CMake and by pkg-config against a tree that may lie anywhere."""
    text = run(["qwen-run", "generate", MODEL, "-p", "The king", "-n", 20, "--seed", 1])
    run([TOOLS / "cmake", "-S", SOURCE / "examples", "-B", WORK / "examples", "-G", "Ninja", f"-DCMAKE_C_COMPILER={COMPILER}",
         f"-DCMAKE_PREFIX_PATH={tree}"])
    run([TOOLS / "cmake", "--build", WORK / "examples"])
    expect("embed of find_package", run([WORK / "examples/embed", MODEL, "The king", 20]), text)
    checks.check((WORK / "examples/batch").exists(), "batch is not built")
    facts = os.environ | {"PKG_CONFIG_PATH": str(tree / "lib/pkgconfig")}
    flags = run(["pkg-config", "--cflags", "--libs", "qwenrt"], env=facts).split()
    run([COMPILER, SOURCE / "examples/embed.c", "-o", WORK / "embed", *flags])
    search = os.environ | {"LD_LIBRARY_PATH": str(tree / "lib")}
    expect("embed of pkg-config", run([WORK / "embed", MODEL, "The king", 20], env=search), text)


tree = installed()
version = run([tree / "bin/qwen-run", "--version"]).split()[-1]
expect("version of qwen-opt", run([tree / "bin/qwen-opt", "--version"]).split()[-1], version)
expect("files", files(tree), set(FILES.format(version=version, zsh="site-functions").split()))
debian = package(version)
expect("files of the package", files(debian), set(FILES.format(version=version, zsh="vendor-completions").split()) | {"share/doc/qwen-compiler/copyright"})
licences = (debian / "share/doc/qwen-compiler/copyright").read_text()
crates = ["crate llguidance"] if (BUILD / "crates.json").exists() else []
for part in ("llvm-22-dev", "libssl-dev", "libstdc++-12-dev", "the page of qwen-run serve", "halide", *crates):
    checks.check(f"{part} " in licences or f"{part}\n" in licences, f"the licences lack {part}")
no_build_paths(debian)
texts(debian)
programs(tree)
checks.finish()
