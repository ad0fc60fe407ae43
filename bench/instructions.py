#!/usr/bin/env python3
"""Counts the instructions for a token on AArch64 under emulation, of qwen-run and of llama.cpp with the same features.

    .venv/bin/python bench/instructions.py WORKDIR --llama LLAMA_CPP [--build build] [--features dotprod+i8mm]

WORKDIR is the folder of bench/peers.py, which leaves the checkpoint and llama.cpp's q4_0 file there. LLAMA_CPP is the source
of llama.cpp (vendor/llama.cpp of llama-cpp-python's source package); the script cross-compiles it for the features. It
unpacks Debian's dynamic qemu-user into WORKDIR, because qemu-user-static cannot load plugins, and installs nothing.

Both programs use one thread and a KV cache in f16. The count is the difference of two runs with different numbers of
tokens, so loading does not count. Instructions are not time: a load and a dot count the same.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHAPE = "qwen2.5-0.5b"
# Tokens of the runs: prompt and count.
BASE, MORE_DECODE, MORE_PREFILL = (32, 1), (32, 3), (96, 1)
EMULATOR_PACKAGES = ("qemu-user", "libcapstone4", "liburing2")
LLVM = pathlib.Path("/usr/lib/llvm-22/bin")


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if result.returncode:
        sys.exit(f"instructions: {' '.join(map(str, command))} failed: {result.stderr.strip()[-500:]}")
    return result


def get_emulator(work):
    """The command of an emulator with plugins, and the environment that it needs."""
    folder = work / "qemu"
    if not folder.exists():
        partial = work / "qemu.partial"
        partial.mkdir(parents=True, exist_ok=True)
        run("apt-get", "download", *EMULATOR_PACKAGES, cwd=partial)
        for package in partial.glob("*.deb"):
            run("dpkg", "-x", package, partial)
        partial.rename(folder)
    environment = dict(os.environ, LD_LIBRARY_PATH=str(folder / "usr/lib/x86_64-linux-gnu"))
    return [folder / "usr/bin/qemu-aarch64", "-cpu", "max"], environment


def build_plugin(work):
    plugin = work / "count_instructions.so"
    run(LLVM / "clang", "-O2", "-shared", "-fPIC", ROOT / "bench/count_instructions.c", "-o", plugin)
    return plugin


def build_llama(work, source, features):
    """The program of peer_llama_cpp.cpp with llama.cpp for AArch64."""
    build = work / f"llama-aarch64-{features}"
    off = [f"-D{name}=OFF" for name in (
        "BUILD_SHARED_LIBS", "GGML_NATIVE", "GGML_OPENMP", "GGML_LLAMAFILE", "LLAMA_BUILD_COMMON", "LLAMA_BUILD_TESTS",
        "LLAMA_BUILD_TOOLS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_SERVER", "LLAMA_BUILD_APP", "LLAMA_CURL")]
    run(ROOT / ".venv/bin/cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/aarch64.cmake", f"-DCMAKE_C_COMPILER={LLVM}/clang",
        f"-DCMAKE_CXX_COMPILER={LLVM}/clang++", "-DCMAKE_LINKER_TYPE=LLD",
        f"-DGGML_CPU_ARM_ARCH=armv8.2-a+fp16+{features}", *off)
    run(ROOT / ".venv/bin/cmake", "--build", build, "--target", "llama")
    program = build / "peer_llama_cpp"
    libraries = [build / "src/libllama.a", *sorted((build / "ggml/src").rglob("libggml*.a"))]
    run(LLVM / "clang++", "--target=aarch64-linux-gnu", "-O2", "-std=c++20", "-static", "-fuse-ld=lld",
        f"-I{source}/include", f"-I{source}/ggml/include", ROOT / "bench/peer_llama_cpp.cpp", "-o", program,
        "-Wl,--start-group", *libraries, "-Wl,--end-group")
    return program


def count(emulator, environment, plugin, command, runs):
    """Instructions of a decoded token and of a prompt token. `command` contains PROMPT and COUNT and runs them `runs`
    times."""
    def executed(prompt, tokens):
        words = [str(word).replace("PROMPT", str(prompt)).replace("COUNT", str(tokens)) for word in command]
        err = run(*emulator, "-plugin", plugin, *words, env=environment).stderr
        return int(re.search(r"executed (\d+)", err)[1]) / runs
    base = executed(*BASE)
    decode = (executed(*MORE_DECODE) - base) / (MORE_DECODE[1] - BASE[1])
    prefill = (executed(*MORE_PREFILL) - base) / (MORE_PREFILL[0] - BASE[0])
    return decode, prefill


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=pathlib.Path, metavar="WORKDIR")
    parser.add_argument("--llama", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--features", default="dotprod+i8mm")
    options = parser.parse_args()
    work = options.work.resolve()
    emulator, environment = get_emulator(work)
    plugin = build_plugin(work)
    model = work / f"{SHAPE}.q4_0.{options.features}.qwen"
    run(options.build / "host/bin/qwen-opt", work / SHAPE, "-o", model, "--target", f"armv8.2-a+{options.features}")
    # A benchmark's first repetition warms up.
    ours = (options.build / "aarch64/bin/qwen-run", "bench", model, "--prompt-tokens", "PROMPT", "-n", "COUNT",
            "--repetitions", "1", "-t", "1")
    theirs = (build_llama(work, options.llama, options.features), work / f"{SHAPE}.q4_0.gguf", "PROMPT", "COUNT")
    print(f"{SHAPE}, q4_0, armv8.2-a+{options.features}, millions of instructions a token")
    print(f"{'':10} {'decode':>8} {'prefill':>8}")
    rows = {"qwen-run": count(emulator, environment, plugin, ours, 2),
            "llama.cpp": count(emulator, environment, plugin, theirs, 1)}
    for name, numbers in rows.items():
        print(f"{name:10} " + " ".join(f"{number / 1e6:8.2f}" for number in numbers))
    print(f"{'ratio':10} " + " ".join(f"{a / b:8.2f}" for a, b in zip(rows["llama.cpp"], rows["qwen-run"])))


if __name__ == "__main__":
    main()
