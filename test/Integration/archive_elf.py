"""What the ELF files of a package ask of a system: glibc of install.sh's version, libgcc_s, and a processor of the least kind. They do not
have the paths of the folders that they were built in.

  archive_elf.py ARCHIVE BUILD [PROGRAM...]

Instructions are read of the PROGRAMs, by default all, in BUILD, where functions have their names.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

from checks import Checks, run

ARCHIVE, BUILD = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
PROGRAMS = sys.argv[3:] or ["bin/qwen-run", "runtime/libqwenrt.so", "bin/qwen-opt"]
LLVM = pathlib.Path("/usr/lib/llvm-22/bin")
NEEDED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# What libgcc_s of GCC 11 has, which Ubuntu 22.04 and RHEL 9 have.
GCC = (7,)
checks = Checks()

# Instructions that x86-64 and Armv8.0 lack. As bsf, an old processor gives the result of tzcnt, which compilers use for numbers
# that are not 0.
BEYOND = {
    "x86_64": r"v(?!err|erw)\w+|k(mov|and|or|xor|not|shift|unpck|test|add)\w+|andn[lq]?|bextr[lq]?|bls(i|r|msk)[lq]?|bzhi[lq]?|mulx[lq]?|"
              r"pdep[lq]?|pext[lq]?|rorx[lq]?|s(ar|hl|hr)x[lq]?|lzcnt[wlq]?|popcnt[wlq]?|crc32[bwlq]?|movbe[wlq]?|cmpxchg16b|aes\w+|"
              r"sha(1|256)\w+|pclmul\w+|rd(rand|seed)\w*|xgetbv|xsave\w*|ad[co]x[lq]?|gf2p8\w+|p(shufb|hadd\w+|hsub\w+|maddubsw|sign[bwd]|"
              r"abs[bwd]|mulhrsw|alignr|blend\w+|test|mulld|muldq|cmpeqq|cmpgtq|cmp[ei]str[im]|extr[bdq]|insr[bdq]|min(sb|sd|uw|ud)|"
              r"max(sb|sd|uw|ud)|mov[sz]x\w+|ackusdw|hminposuw)|round[sp][sd]|blend\w+|dpp[sd]|mpsadbw|extractps|insertps|movntdqa|lddqu|"
              r"mov(ddup|shdup|sldup)|h(add|sub)p[sd]|addsubp[sd]|fisttp\w*|tdp\w+|tile\w+|(ld|st)tilecfg",
    "aarch64": r"(ld|st)(add|clr|eor|set|smax|smin|umax|umin)(a|l|al)?[bh]?|swp(a|l|al)?[bh]?|casp?(a|l|al)?[bh]?|[su](dot|mmla)|us(dot|mmla)|"
               r"sq(rdml)\w+|fcmla|fcadd|bf\w*(dot|mmla)|fmlal2?|fmlsl2?|ptrue|while\w+|ld1(rq)?[bhwd]|cnt[bhwd]|inc[bhwd]|rdvl|addvl|"
               r"aes\w+|sha(1|256|512)\w+|eor3|rax1|xar|bcax|pmull2?|crc32\w+|ldapr\w*|rndr\w*",
}
# Functions that run only where the processor has what they use, with the place that asks.
ASKED = {
    "x86_64": r"inVectorsOfAvx2|"  # WideVectors.h
              r"^(dotAmx|dot(Avx\w+)|fma(Avx\w+))\(|"  # Peaks.cpp
              r"hostFeatures|get_available_features|_xgetbv|"  # the question itself
              r"std::\(anonymous namespace\)::__x86_rd|"  # libstdc++'s random_device
              r"memchr::arch::x86_64|"  # the crate's table of functions
              r"^_?(FSE|HUF|ZSTD)_\w+|"  # libzstd's functions for BMI2
              r"llvm_blake3|getHostCPUName",  # LLVM's, by its own question
    "aarch64": r"^__aarch64_\w+|"  # libgcc's atomics
               r"^(dot|fma)\w+\(|"  # Peaks.cpp
               r"memchr::arch|llvm_blake3|getHostCPUName",
}
# qwen-opt ends at its start without these (leastFeatures). Its quantizers use them, and functions of templates that both share.
LEAST = {("x86_64", "qwen-opt"): r"v(?!p?(dpb|dpw)|\w*x?ord$)\w+"}


def functions_of(archive):
    """The names of OpenSSL's functions, which asks the processor at its start (OPENSSL_ia32cap_P, OPENSSL_armcap_P)."""
    return set(re.findall(r" [tT] (\S+)", subprocess.run([LLVM / "llvm-nm", archive], capture_output=True, text=True).stdout))


def folders_of_build():
    """The folders of the project, of its build and of the crates."""
    found = {str(pathlib.Path(__file__).resolve().parents[2]), str(BUILD)}
    crates = BUILD / "crates.json"
    if crates.exists():
        found |= set(re.findall(r'"manifest_path":"([^"]+)/[^/"]+/Cargo.toml"', crates.read_text()))
    return {name.encode() for name in found}


def check_elf(path, name, glibc):
    code = path.read_bytes()
    for folder in folders_of_build():
        checks.check(folder + b"/" not in code, f"{name} has the path {folder.decode()}")
    text = run([LLVM / "llvm-objdump", "-p", path])
    needed = set(re.findall(r"NEEDED\s+(\S+)", text))
    checks.check(needed <= NEEDED, f"{name} needs {sorted(needed - NEEDED)}")
    for found in re.findall(r"(?:RPATH|RUNPATH)\s+(\S+)", text):
        checks.expect(f"RPATH of {name}", found, "$ORIGIN")
    for version in re.findall(r"^\s+0x[0-9a-f]+ 0x[0-9a-f]+ \d+ (\S+)", text, re.M):
        family, _, number = version.rpartition("_")
        limit = {"GLIBC": glibc, "GCC": GCC}.get(family)
        parts = tuple(int(part) for part in number.split(".")) if re.fullmatch(r"[\d.]+", number) else None
        checks.check(limit and parts and parts <= limit, f"{name} needs {version}")
    checks.check(re.search(r"GLIBC_2", text), f"{name} names no version of glibc: the form of llvm-objdump has changed")


def architecture(path):
    return {62: "x86_64", 183: "aarch64"}[int.from_bytes(path.read_bytes()[18:20], "little")]


def check_instructions(path):
    arch = architecture(path)
    beyond, asked = re.compile(rf"\t({BEYOND[arch]})(?:\s|$)"), re.compile(ASKED[arch])
    least = re.compile(LEAST.get((arch, path.name), "$^"))
    cache = (BUILD / "CMakeCache.txt").read_text()
    crypto = re.search(r"^LIBCRYPTO:\w+=(.*)$", cache, re.M)
    openssl = functions_of(crypto[1]) if crypto else set()
    process = subprocess.Popen([LLVM / "llvm-objdump", "-d", "--no-show-raw-insn", "-C", path], stdout=subprocess.PIPE, text=True, errors="replace")
    function, count, found = "", 0, {}
    for line in process.stdout:
        if start := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            function = start[1]
            continue
        count += 1
        match = beyond.search(line)
        if match and not least.fullmatch(match[1]) and function not in openssl and not asked.search(function):
            found.setdefault(function, set()).add(match[1])
    checks.check(process.wait() == 0 and count > 100000, f"{path.name}: {count} instructions are read")
    for function, instructions in list(found.items())[:20]:
        checks.check(False, f"{path.name} has {sorted(instructions)} in {function}, which a processor of the least kind lacks")


with tempfile.TemporaryDirectory() as folder:
    run(["tar", "--zstd", "-xf", ARCHIVE, "-C", folder])
    tree = next(pathlib.Path(folder).iterdir())
    glibc = tuple(int(part) for part in re.search(r"^glibc=(.*)", (tree / "install.sh").read_text(), re.M)[1].split("."))
    elves = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"]
    checks.check(len(elves) >= 3, f"the archive has {len(elves)} ELF files")
    for elf in elves:
        check_elf(elf, str(elf.relative_to(tree)), glibc)
for program in PROGRAMS:
    check_instructions((BUILD / program).resolve())
checks.finish()
