#!/usr/bin/env python3
"""Prints the cycles of the Arm kernels' loops by llvm-mca, for a whole block of 128 values.

    bench/mca.py [--build build/host] [--cpu neoverse-n2]... [--kernel SUBSTRING]
                 [--llama LLAMA_CPP] [--kleidiai KLEIDIAI]

Prints one table: kernel, CPU, multiplications a cycle, share of the peak of the kernel's dot instruction, and cycles for
32 values of 4 outputs. LLAMA_CPP and KLEIDIAI are the sources of the peers (`pip download --no-deps --no-binary
llama-cpp-python llama-cpp-python` has llama.cpp in vendor/). clang compiles their Q4_0 loops for the same CPU.

model-kernel (lib/CostModel) counts the instructions of one pass of the loop over blocks of 128, as for `qwen-opt report`:
loads, unpacking, scales, the update after the block, stores. For kernels that unpack weights once for many tokens, it counts
one strip of tokens and the schedule's panels. Branches go as in a long product. If LLVM's model and Arm's optimization guide
differ, the higher cost counts: `scvtf` with a fraction becomes `scvtf`. Of the gated delta rule it counts a call with a key of 128
values, and the peak is that of its multiplications (four for each element of the state), loads and stores.
"""

import argparse
import json
import subprocess
import tempfile

from formats import weight_formats

CPUS = ["neoverse-n2", "neoverse-v1", "neoverse-v2", "neoverse-n1", "cortex-a76", "cortex-a72"]
# 0: NEON only, 1: dotprod, 2 (all other CPUs): i8mm and SVE.
LEVEL = {"cortex-a72": 0, "neoverse-n1": 1, "cortex-a76": 1}


def print_rate(options, name, cpu, file, function):
    out = subprocess.run([f"{options.build}/bin/model-kernel", file, function, cpu], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(out.stderr)
    found = json.loads(out.stdout)
    rate = found["macs"] / found["cycles"]
    print(f"{name:52} {cpu:12} {rate:6.1f} {100 * rate / found['peak']:4.0f}% {128 / rate:6.2f}", flush=True)


KERNELS = ["linear_{f}_1x16x4_neon", "linear_{f}_4x16x4_neon",
           "linear_{f}_1x16x4_neon_dotprod", "linear_{f}_4x16x4_neon_dotprod", "linear_{f}_8x16x4_neon_dotprod",
           "linear_{f}_1x16x4_sve", "linear_{f}_8x16x4_sve",
           "linear_{f}_8x16x4_neon_i8mm", "linear_{f}_8x16x4_sve_i8mm"]
NAMES = [form.format(f=weights) for form in KERNELS for weights in weight_formats(quantized=True)] + ["delta_rule_neon"]


def needs(name):
    return 2 if "sve" in name or "i8mm" in name else 1 if "dotprod" in name else 0


def ours(options, cpu, folder):
    for name in NAMES:
        if options.kernel not in name or needs(name) > LEVEL.get(cpu, 2):
            continue
        file = f"{folder}/kernel.so"
        subprocess.run([f"{options.build}/bin/make-kernels", f"--kernel={name}", cpu, file], check=True)
        print_rate(options, name, cpu, file, name)


# Sources of the peers' loops, by the option that names their folder: file, function, least level.
PEERS = {
    "llama": [("ggml/src/ggml-cpu/arch/arm/repack.cpp", f"ggml_{kind}_q4_0_{tile}_q8_0", level)
              for kind in ("gemv", "gemm") for tile, level in (("4x4", 1), ("4x8", 2))],
    "kleidiai": [(f"kai/ukernels/matmul/matmul_clamp_f32_qsi8d32p_qsi4c32p/"
                  f"kai_matmul_clamp_f32_qsi8d32p{tile}_asm.S", f"qsi8d32p{tile}", level)
                 for tile, level in (("1x4_qsi4c32p4x4_1x4_neon_dotprod", 1),
                                     ("1x8_qsi4c32p4x8_1x4x32_neon_dotprod", 1),
                                     ("4x4_qsi4c32p4x4_16x4_neon_dotprod", 1),
                                     ("4x8_qsi4c32p4x8_16x4_neon_i8mm", 2),
                                     ("4x8_qsi4c32p8x8_16x8_sve_i8mm", 2))],
}


def peers(options, cpu, folder, name):
    root = getattr(options, name)
    for source, function, level in PEERS[name] if root else []:
        if level > LEVEL.get(cpu, 2) or options.kernel not in function:
            continue
        includes = ["", "ggml/include", "ggml/src", "ggml/src/ggml-cpu"]
        file = f"{folder}/peer.o"
        subprocess.run(["clang-22", "--target=aarch64-linux-gnu", "-O3", f"-mcpu={cpu}", "-w", "-c",
                        *[f"-I{root}/{path}" for path in includes], f"{root}/{source}", "-o", file], check=True)
        print_rate(options, f"{name}: {function}", cpu, file, function)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/host")
    parser.add_argument("--cpu", action="append")
    parser.add_argument("--kernel", default="")
    parser.add_argument("--llama")
    parser.add_argument("--kleidiai")
    options = parser.parse_args()
    print(f"{'loop':52} {'CPU':12} {'MAC/c':>6} {'peak':>5} {'c/4x32':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for cpu in options.cpu or CPUS:
            ours(options, cpu, folder)
            for name in PEERS:
                peers(options, cpu, folder, name)


if __name__ == "__main__":
    main()
