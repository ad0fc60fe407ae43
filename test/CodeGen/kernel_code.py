"""Checks facts of the code of kernels in the files of KernelTest (kernels-TARGET.so).

  kernel_code.py FILE...

A matrix product multiplies in an innermost loop, with the instruction that the kernel's name states. It has no instruction with
another rounding or of another instruction set, and its main loop does not spill. All other kernels compute roots, quotients and
roundings with the instructions that docs/numerics.md needs, and never fuse a multiplication with an addition, but for the sums of the
short convolution and of the gated delta rule. Attention's products use fma, widen f16 with the instruction for it, and prefetch on
x86.
"""
import re
import subprocess
import sys

from checks import Checks, weight_formats

# For each instruction set: the instruction for integer weights, the one for f32 and bf16 weights, and the number of spilled
# vector registers that the main loop may have for each 100 multiplications.
#   avx2, avxvnni: 16 registers are too few for a tile, so its sums are on the stack.
#   neon: the table of a codebook takes a register that a tile needs.
#   neon_dotprod, neon_i8mm, sve_i8mm: LLVM orders a tile's loads for no particular CPU and needs a few more than 32 registers.
PRODUCTS = {
    "avx2": (r"vpmaddubsw .*%ymm", r"vfmadd\d+ps .*%ymm", 65),
    "avxvnni": (r"\{vex\} vpdpbusd .*%ymm", None, 60),
    "avx512": (None, r"vfmadd\d+ps .*%zmm", 0),
    "avx512vnni": (r"vpdpbusd .*%zmm", None, 0),
    "amx_int8": (r"tdpbssd %tmm", None, 0),
    "neon": (r"s(mull|mlal)2? v\d+\.8h", r"fmla v\d+\.4s", 4),
    "neon_dotprod": (r"sdot v\d+\.4s", None, 10),
    "neon_i8mm": (r"smmla v\d+\.4s", None, 25),
    "sve": (r"sdot z\d+\.s", r"fmla z\d+\.s", 0),
    "sve_i8mm": (r"smmla [vz]\d+\.(4s|s)", None, 10),
}
# The same number of spills for formats with bits apart from the others or with sub-blocks: unpacking them takes registers of the tile,
# whose schedule is mostly that of all integers. No more than LLVM 22 needs.
APART = {"q4_k", "q5_k", "q6_k", "nl4_xs", "q5_0", "q5_m_32"}
SPILLS_APART = {"avx2": 113, "avxvnni": 85, "avx512vnni": 8, "amx_int8": 0, "neon": 32, "neon_dotprod": 33, "neon_i8mm": 82, "sve": 0,
                "sve_i8mm": 10}
# Likewise for two more cases. Formats with two numbers a block spill because scales or unrolled loops take registers of the tile.
# q8_0 spills because LLVM, without a model of a CPU, moves loads of weights ahead of the dots.
SPILLS_OF_FORMAT = {("q8_0", "avx512vnni"): 5, ("q4_m_32", "avx512vnni"): 4, ("q4_z_32", "avx512vnni"): 4, ("q4_m_64", "avx512vnni"): 12,
                    ("q4_z_64", "avx512vnni"): 9, ("q4_m_64", "neon_i8mm"): 27, ("q4_z_64", "neon_i8mm"): 30}
# Other dots of integers: for sums of 16 activations, 32 values at a time, and of sums of 32 activations with minimums.
OTHER_DOTS = {("q6_k", "avx512vnni"): re.compile(r"vpdpbusd .*%ymm"),
              **{(weights, isa): re.compile(r"vpdpwssd .*%zmm") for weights in ("q4_k", "q5_k") for isa in ("avx512vnni", "amx_int8")},
              **{(weights, isa): re.compile(r"sdot [vz]\d+\.(4s|s)") for weights in ("q4_k", "q5_k") for isa in ("neon_i8mm", "sve_i8mm")}}
INTEGER_DOT = re.compile(r"vpmaddubsw|vpdp|tdp|\bu?sdot\b|\budot\b|u?smmla|\bs(mull|mlal)2? v\d+\.8h")
# A shift widens bf16, because each bf16 instruction rounds in its own way.
BF16 = re.compile(r"dpbf16|vcvtne|bfdot|bfml|bfmmla|bfcvt")
# A store of a vector register to the stack. Stores with an index write to arrays and do not count.
SPILL = re.compile(r"%[yz]mm\d+, -?\w*\(%r[sb]p\)$|\bst[rp] q\d+.*\[(sp|x29)(, #-?\w+)?\]$|\bstr z\d+, \[sp")

# Attention's products: fma in an innermost loop, the instruction that widens f16, and a prefetch.
ATTENTION = {"avx2": (r"vfmadd\d+ps .*%ymm", "vcvtph2ps .*%ymm", "prefetch"), "avx512": (r"vfmadd\d+ps .*%zmm", "vcvtph2ps .*%zmm", "prefetch"),
             "neon": (r"fmla v\d+\.4s", r"fcvtl2? v\d+\.4s", ""), "sve": (r"fmla z\d+\.s", r"fcvt z\d+\.s", "")}

# Instructions that other kernels must have, by their names without the instruction set.
X86 = {"rms_norm_q8": ["vsqrtss", "vdivss", "vrndscaleps|vroundps"], "swiglu_f32": ["vrndscaleps|vroundps", "vdivps"],
       "append_v_f16": [r"vcvtps2ph \$[04x]"], "embed_q4_0": ["vcvtph2ps"], "short_convolution": ["vfmadd"], "delta_rule": ["vfmadd"]}
ARM = {"rms_norm_q8": ["fsqrt", "fdiv", "frintn"], "swiglu_f32": ["frintn", "fdiv"], "append_v_f16": [r"fcvtn v\d+\.4h"],
       "embed_q4_0": ["fcvt s"], "short_convolution": ["fmla"], "delta_rule": ["fmla"]}
NEEDED = {"avx2": X86, "avx512": X86, "neon": ARM}
# Estimates and calls, and fused operations where sums are no chains of fma.
FORBIDDEN = re.compile(r"vrcp|vrsqrt|frecp|frsqrt|callq?\b|blr?\b")
FUSED = re.compile(r"vfn?m(add|sub)|fn?m(la|ls|add|sub)\b")
WITH_CHAINS = {"short_convolution", "delta_rule"}

HEADER = re.compile(r"[0-9a-f]+ <(\w+)\.[^>]*>:$")
PRODUCT = re.compile(r"linear_(\w+?)_\d+x16(?:x4)?_(\w+)$")
ATTENTION_PRODUCT = re.compile(r"attention_(?:scores|values)_(f32|f16)_(\w+)$")
OTHER = re.compile(r"(\w+)_(avx2|avx512|neon)$")
LINE = re.compile(r"\s*([0-9a-f]+):\s+(.*)$")
BRANCH = re.compile(r"(?:j\w+|b(?:\.\w+)?|cbn?z\s+\w+,|tbn?z\s+\w+, #\w+,)\s+0x([0-9a-f]+) <")


def functions(path):
    """(name, [(address, instruction)]) of each function of a file."""
    text = subprocess.run(["llvm-objdump", "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if lines and (header := HEADER.match(lines[0])):
            yield header[1], [(int(m[1], 16), m[2].replace("\t", " ")) for m in map(LINE.match, lines[1:]) if m]


def innermost_loops(code):
    """The instructions of each innermost loop, from the target of a backward branch to the branch."""
    spans = sorted({(int(m[1], 16), address) for address, text in code
                    if (m := BRANCH.match(text)) and int(m[1], 16) <= address})
    return [[text for address, text in code if begin <= address <= end] for begin, end in spans
            if not any((b, e) != (begin, end) and begin <= b and e <= end for b, e in spans)]


def check_product(checks, name, weights, isa, code):
    integer, floating, share = PRODUCTS[isa]
    if weights in APART:
        share = SPILLS_APART[isa]
    share = SPILLS_OF_FORMAT.get((weights, isa), share)
    other = OTHER_DOTS.get((weights, isa))
    multiplies = re.compile(integer if weights in weight_formats(quantized=True) else floating)

    def count(loop):
        return sum(bool(multiplies.match(text)) for text in loop)

    # Of those that multiply as often, the shortest: others write arrays to the stack.
    main = max(innermost_loops(code), key=lambda loop: (count(loop), -len(loop)), default=[])
    checks.check(count(main), f"{name} has no innermost loop with {multiplies.pattern}")
    wrong = [text for _, text in code if BF16.search(text)
             or (INTEGER_DOT.search(text) and not multiplies.match(text) and not (other and other.match(text)))]
    checks.check(not wrong, f"{name} has {wrong[:3]}")
    spills = [text for text in main if SPILL.search(text)]
    checks.check(100 * len(spills) <= share * count(main),
                 f"{name} has {len(spills)} spills for {count(main)} multiplications in its main loop: {spills[:3]}")


def check_attention(checks, name, cache, isa, code):
    fma, widen, prefetch = (re.compile(pattern) for pattern in ATTENTION[isa])
    checks.check(any(fma.match(text) for loop in innermost_loops(code) for text in loop), f"{name} has no innermost loop with {fma.pattern}")
    for needed in (widen, prefetch) if cache == "f16" else (prefetch,):
        checks.check(any(needed.match(text) for _, text in code), f"{name} has no {needed.pattern}")


def check_other(checks, name, kind, isa, code):
    wrong = [text for _, text in code if FORBIDDEN.match(text) or (kind not in WITH_CHAINS and FUSED.match(text))]
    checks.check(not wrong, f"{name} has {wrong[:3]}")
    for needed in NEEDED[isa].get(kind, []):
        checks.check(any(re.match(needed, text) for _, text in code), f"{name} has no {needed}")


checks = Checks()
found = set()
for path in sys.argv[1:]:
    for name, code in functions(path):
        if product := PRODUCT.match(name):
            weights, isa = product.groups()
            check_product(checks, name, weights, isa, code)
            found.add((isa, weights.startswith("q")))
        elif attention := ATTENTION_PRODUCT.match(name):
            check_attention(checks, name, *attention.groups(), code)
            found.add(attention.groups())
        elif other := OTHER.match(name):
            check_other(checks, name, *other.groups(), code)
            found.add(other[1])
expected = {(isa, integer) for isa, parts in PRODUCTS.items() for integer in (True, False) if parts[not integer]}
expected |= {(cache, isa) for cache in ("f32", "f16") for isa in ATTENTION} | set(X86) | set(ARM)
checks.check(expected <= found, f"no kernels for {expected - found}")
checks.finish()
