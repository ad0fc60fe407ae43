#!/usr/bin/env python3
"""Compares models with experts with ik_llama.cpp and llama.cpp, beside dense models of what a token uses of them, in alternating runs.

  .venv/bin/python bench/experts.py WORKDIR [--model 30b-a3b|35b-a3b] [--layers N] [--weights q4_0|q4_k_m] [--rounds N] [--threads N]
                                            [--peers ik_llama.cpp llama.cpp]

Makes GGUF files of random integers with the shapes of Qwen3-30B-A3B or Qwen3.5-35B-A3B and of the dense model (bench/random_gguf.py), and
compiles them, so that all programs have the same integers. Installs the peers from their source packages into WORKDIR/ik and
WORKDIR/peers. Each round runs every program once. Prints medians, least and greatest of prefill (512 tokens) and decode (64 tokens) in
tokens/s, and ratios, round by round.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import random_gguf
from peers import BENCH, DECODE, PROMPT, LlamaCpp, Ours, install, output

# Endings of the names of bench/random_gguf.py.
MODELS = {"experts": "", "dense": "-dense"}


# A script of ik_llama.cpp's build that the source package lacks.
BUILD_INFO = """set(BUILD_NUMBER 0)
configure_file(${CMAKE_CURRENT_LIST_DIR}/../build-info.cpp.in ${CMAKE_CURRENT_LIST_DIR}/../build-info.cpp)
"""


def ik_environment(folder):
    """In it the libraries of ik-llama-cpp-python find each other, which they do not by themselves."""
    libraries = folder.glob("lib/python*/site-packages/ik_llama_cpp/lib")
    return os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries))}


def install_ik(folder):
    """The Python of an environment with ik_llama.cpp, which takes about half an hour to build on two cores."""
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    if subprocess.run([python, "-c", "import ik_llama_cpp"], capture_output=True, env=ik_environment(folder)).returncode:
        pip = [python, "-m", "pip", "--quiet"]
        subprocess.run([*pip, "download", "--no-deps", "--no-binary", ":all:", "--dest", folder, "ik-llama-cpp-python==0.1.5"], check=True)
        package, = folder.glob("ik_llama_cpp_python-*.tar.gz")
        shutil.unpack_archive(package, folder)
        source = folder / package.name.removesuffix(".tar.gz")
        script = source / "vendor/ik_llama.cpp/common/cmake/build-info-gen-cpp.cmake"
        script.parent.mkdir(exist_ok=True)
        script.write_text(BUILD_INFO)
        subprocess.run([*pip, "install", source, "numpy"], check=True,
                       env=os.environ | {"CC": "clang-22", "CXX": "clang++-22", "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count())})
    return python


class Ik:
    def __init__(self, python, file, threads):
        self.command = [python, BENCH / "peer_ik.py", file, PROMPT, DECODE, threads]
        self.environment = ik_environment(python.parent.parent)

    def bench(self):
        return json.loads(output(*self.command, stderr=subprocess.DEVNULL, env=self.environment))


# The program of a peer, and the Python that runs it, by the name of the peer.
PEERS = {
    "ik_llama.cpp": (Ik, lambda workdir: install_ik(workdir / "ik")),
    "llama.cpp": (LlamaCpp, lambda workdir: install(workdir / "peers", with_transformers=False)),
}


def prepare(args):
    """Programs by name."""
    pythons = {name: PEERS[name][1](args.workdir) for name in args.peers}
    programs = {}
    for kind, ending in MODELS.items():
        stem = args.workdir / f"{args.model}{ending}.{args.layers}.{args.weights}"
        compiled, file = (stem.with_name(stem.name + suffix) for suffix in (".qwen", ".gguf"))
        if not file.exists():
            random_gguf.write(file, args.model + ending, args.layers, args.weights)
        if not compiled.exists():
            Ours(compiled, args.threads).compile(file)
        programs[f"qwen-run {kind}"] = Ours(compiled, args.threads)
        for name, python in pythons.items():
            programs[f"{name} {kind}"] = PEERS[name][0](python, file, args.threads)
    return programs


def line(name, values, digits=1):
    print(f"{name}: {statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--model", choices=("30b-a3b", "35b-a3b"), default="30b-a3b")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--weights", choices=("q4_0", "q4_k_m"), default="q4_0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=["ik_llama.cpp"])
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    programs = prepare(args)
    rounds = [{name: program.bench() for name, program in programs.items()} for _ in range(args.rounds)]
    for kind in ("prefill", "decode"):
        for name in programs:
            line(f"{kind}, {name}, tokens/s", [each[name][kind] for each in rounds])
        for peer in args.peers:
            ratios = {model: [each[f"qwen-run {model}"][kind] / each[f"{peer} {model}"][kind] for each in rounds] for model in MODELS}
            for model, values in ratios.items():
                line(f"{kind}, qwen-run beside {peer}, {model}", values, 2)
            line(f"{kind}, that ratio with experts beside without", [a / b for a, b in zip(*ratios.values())], 2)
        line(f"{kind}, qwen-run with experts beside without", [each["qwen-run experts"][kind] / each["qwen-run dense"][kind] for each in rounds], 2)


if __name__ == "__main__":
    main()
