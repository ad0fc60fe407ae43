#!/usr/bin/env python3
"""Cycles of the Arm kernels' loops by llvm-mca, a whole block of 128 values at a time.

    bench/mca.py [--build build/host] [--cpu neoverse-n2]... [--row SUBSTRING]
                 [--tokens 64] [--panels 4] [--llama LLAMA_CPP] [--kleidiai KLEIDIAI]

Prints one table: row, CPU, multiplications a cycle, share of the peak of the row's dot instruction, and cycles for a
block of 32 of 4 outputs. The two folders are sources of the peers (`pip download --no-deps --no-binary
llama-cpp-python llama-cpp-python` has llama.cpp in vendor/); their Q4_0 loops are compiled with clang for the same CPU.

What is counted: the instructions of one pass of the loop over blocks of 128, in the order in which they are executed,
with everything in it: loads, unpacking, scales, the update after the block, stores. Where weights are unpacked for
many tokens, the pass is one of all its loops over `--tokens` tokens and `--panels` panels of 16 outputs. Branches are taken as in a long product.

Where the model and Arm's guide differ the dearer counts: `scvtf` with a fraction becomes `scvtf`.
"""

import argparse
import json
import pathlib
import re
import subprocess
import tempfile

# Dot instructions and their multiplications for each 128 bits of a register.
DOTS = {"smmla": 32, "usmmla": 32, "sdot": 16, "smull": 8, "smull2": 8, "smlal": 8, "smlal2": 8}
# Bits of an SVE register.
VECTOR_BITS = {"neoverse-v1": 256, "a64fx": 512}
CPUS = ["neoverse-n2", "neoverse-v1", "neoverse-v2", "neoverse-n1", "cortex-a76", "cortex-a72"]
FEATURES = {"neon": 0, "dotprod": 1, "i8mm": 2, "sve": 2}
LEVEL = {"cortex-a72": 0, "neoverse-n1": 1, "cortex-a76": 1}


# Groups of 32 values in a block.
BLOCK_GROUPS = 4


class Instruction:
    def __init__(self, address, text, target):
        self.address, self.text, self.target = address, text, target
        self.name = text.split()[0]
        self.conditional = target is not None and self.name != "b"

    def multiplications(self, bits):
        each = DOTS.get(self.name, 0)
        if not each or (self.name.startswith(("smull", "smlal")) and ".8h" not in self.text):
            return 0
        return each * (bits // 128 if re.search(r"\bz\d+", self.text) else 1)


def disassemble(path, symbol):
    """The instructions of the functions that have `symbol` in their names."""
    text = subprocess.run(["llvm-objdump-22", "-d", "--no-show-raw-insn", "--mattr=+all", path],
                          capture_output=True, text=True, check=True).stdout
    body, inside = [], False
    for line in text.splitlines():
        if head := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            inside = symbol in head[1]
        elif inside and (found := re.match(r"\s*([0-9a-f]+):\s+(.*)", line)):
            code = found[2].split("//")[0].strip().replace("\t", " ")
            target = re.search(r"0x([0-9a-f]+) <", code) if re.match(r"(b|b\.\w+|cbn?z|tbn?z) ", code) else None
            body.append(Instruction(int(found[1], 16), code, int(target[1], 16) if target else None))
    if not body:
        raise SystemExit(f"mca: no function '{symbol}' in {path}")
    return body


class Flow:
    """The control flow of a function: natural loops, by the index of their first instruction."""

    def __init__(self, body):
        self.body = body
        index = {i.address: n for n, i in enumerate(body)}
        self.next = [self.successors(n, index) for n in range(len(body))]
        before = [[] for _ in body]
        for n, after in enumerate(self.next):
            for to in after:
                before[to].append(n)
        self.loops = {}
        alive = self.reachable(0, set())  # Not what fills up to an aligned address.
        for head in (n for n, ways in enumerate(before) if len(ways) > 1):
            # Whatever comes back to the head, which is on every way there.
            reached = self.reachable(0, {head})
            inside, todo = {head}, [n for n in before[head] if n in alive - reached]
            while todo:
                n = todo.pop()
                if n not in inside:
                    inside.add(n)
                    todo += [to for to in before[n] if to in alive]
            if any(head in self.next[n] for n in inside):
                self.loops[head] = inside

    def successors(self, n, index):
        i = self.body[n]
        to = [index[i.target]] if i.target in index else []
        return to if i.name in ("b", "ret") else to + [n + 1] if n + 1 < len(self.body) else to

    def reachable(self, start, without):
        seen, todo = set(), [start]
        while todo:
            n = todo.pop()
            if n not in seen and n not in without:
                seen.add(n)
                todo += self.next[n]
        return seen

    def around(self, head):
        """The loops around a loop, innermost first."""
        outer = [h for h, inside in self.loops.items() if h != head and self.loops[head] < inside]
        return sorted(outer, key=lambda h: len(self.loops[h]))

    def executed(self, outer, counts):
        """One pass of the loop `outer` as executed, where loops within it run as often as `counts` says (else once)
        and the ones that it names are not passed by."""
        nest = {h: inside for h, inside in self.loops.items() if inside < self.loops[outer]}
        passes, result, at, missing = {}, [], outer, set(counts)
        while True:
            if at in nest:
                if passes.get(at, 0) == 0 or result[-1] not in nest[at]:
                    passes[at] = 0
                passes[at] += 1
                missing.discard(at)
            result.append(at)
            if len(result) > 1_000_000:
                raise SystemExit("mca: the loop does not come back to its head")
            after = [to for to in self.next[at] if to in self.loops[outer]]
            at = self.choose(at, after, nest, passes, counts, missing, outer)
            if at == outer:
                return [self.body[n] for n in result]

    def choose(self, at, after, nest, passes, counts, missing, outer):
        if len(after) < 2:
            return after[0]
        inner = min((h for h in nest if at in nest[h]), key=lambda h: len(nest[h]), default=None)
        if inner is not None:
            stay = [to for to in after if to in nest[inner]]
            leave = [to for to in after if to not in nest[inner]]
            if stay and leave:
                done = passes[inner] >= counts.get(inner, 1) + (inner not in stay)
                return leave[0] if done else stay[0]
        heads = {outer} | ({inner} if inner is not None else set())
        through = [n for n in after if n not in heads and self.reachable(n, heads) & missing] if missing else after
        return next((n for n in through if n == at + 1), (through or after)[0])


def cycles(instructions, cpu, passes):
    """Cycles of one pass of many, and the model's bound by pipes."""
    lines = []
    for i in instructions:
        text = re.sub(r" <.*?>", "", i.text)
        if i.target is not None:
            text = re.sub(r"0x[0-9a-f]+$", "#64", text)
        if i.name == "scvtf":
            text = re.sub(r", #\d+$|, #0x[0-9a-f]+$", "", text)
        lines.append(text)
    out = subprocess.run(["llvm-mca-22", "-mtriple=aarch64", f"-mcpu={cpu}", "-mattr=+sve,+i8mm,+dotprod,+fullfp16",
                          f"-iterations={passes}", "-json"], input="\n".join(lines), capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(out.stderr)
    summary = json.loads(out.stdout)["CodeRegions"][0]["SummaryView"]
    return summary["TotalCycles"] / passes, summary["BlockRThroughput"]


def peak(cpu, name, bits):
    """Multiplications a cycle of dot instructions alone."""
    scalable = bits > 128
    text = {"smmla": "smmla z{0}.s, z30.b, z31.b" if scalable else "smmla v{0}.4s, v30.16b, v31.16b",
            "sdot": "sdot z{0}.s, z30.b, z31.b" if scalable else "sdot v{0}.4s, v30.16b, v31.16b",
            "smlal": "smlal v{0}.8h, v30.8b, v31.8b"}[name]
    body = [Instruction(0, text.format(n), None) for n in range(24)]
    return 24 * body[0].multiplications(bits) / cycles(body, cpu, 100)[1]


def dots_of(body, loop, bits):
    return sum(i.multiplications(bits) for i in body[loop[0]:loop[1] + 1])


def hot_loops(flow, bits):
    """The loops with the most dots that have no loop of dots in them."""
    dots = {h: sum(flow.body[n].multiplications(bits) for n in inside) for h, inside in flow.loops.items()}
    inner = [h for h in dots if dots[h] and not any(dots[o] for o in dots if flow.loops[o] < flow.loops[h])]
    return [h for h in inner if dots[h] == max(dots[o] for o in inner)]


def block_loop(flow, hot):
    """The loop over blocks of 128 of one of our kernels: where scales are widened."""
    def widens(n):
        return flow.body[n].name.startswith("fcvt")
    return next(h for h in flow.around(hot) if any(widens(n) for n in flow.loops[h]))


def block_pass(flow, bits, tokens, panels):
    """The instructions of one pass of the loop over blocks."""
    hot = hot_loops(flow, bits)
    if len(hot) > 1:
        # SVE rows have code for vectors of 128 bits, with NEON's registers, and for longer ones.
        hot = [h for h in hot if (" z" in " ".join(flow.body[n].text for n in flow.loops[h])) == (bits > 128)]
    hot = hot[0]
    block = block_loop(flow, hot)
    if [h for h in flow.loops if flow.around(h)[:1] == [block]] == [hot]:
        return flow.executed(block, {hot: BLOCK_GROUPS})
    # Of many tokens: activations are arranged, and for each panel its weights are unpacked, then multiplied.
    counts = {block: panels}
    around = flow.around(hot)
    outer = flow.around(block)[0]
    for h in flow.loops:
        if flow.around(h)[:1] == [outer] and h != block:
            counts[h] = tokens // 2
        if flow.around(h)[:1] == [block] and h != hot and h not in around:
            counts[h] = BLOCK_GROUPS
    outputs = 8 * bits // 128
    if around[0] != block:
        counts[around[0]] = 16 // outputs
    macs = sum(flow.body[n].multiplications(bits) for n in flow.loops[hot])
    counts[hot] = tokens * outputs * 128 // macs
    return flow.executed(outer, counts)


def print_row(name, cpu, rate, best, note=""):
    print(f"{name:52} {cpu:12} {rate:6.1f} {100 * rate / best:4.0f}% {128 / rate:6.2f}  {note}", flush=True)


def dot_name(name):
    return "smmla" if "i8mm" in name else "sdot" if "dotprod" in name or "sve" in name else "smlal"


ROWS = ["linear_{f}_1x16x4_neon", "linear_{f}_4x16x4_neon",
        "linear_{f}_1x16x4_neon_dotprod", "linear_{f}_4x16x4_neon_dotprod", "linear_{f}_8x16x4_neon_dotprod",
        "linear_{f}_1x16x4_sve", "linear_{f}_8x16x4_sve",
        "linear_{f}_8x16x4_neon_i8mm", "linear_{f}_8x16x4_sve_i8mm"]


def needs(name):
    return 2 if "sve" in name or "i8mm" in name else 1 if "dotprod" in name else 0


def ours(options, cpu, folder):
    for form in ROWS:
        for weights in ("q4_0", "q4_g128", "q8_0"):
            name = form.format(f=weights)
            if options.row not in name or needs(name) > LEVEL.get(cpu, 2):
                continue
            file = f"{folder}/kernel.so"
            subprocess.run([options.build + "/bin/make-kernels", f"--kernel={name}", cpu, file], check=True)
            bits = VECTOR_BITS.get(cpu, 128) if "sve" in name else 128
            executed = block_pass(Flow(disassemble(file, name)), bits, options.tokens, options.panels)
            macs = sum(i.multiplications(bits) for i in executed)
            rate = macs / cycles(executed, cpu, max(3, 20000 // len(executed)))[0]
            print_row(name, cpu, rate, peak(cpu, dot_name(name), bits))


# Sources of the peers' loops, by the option that names their folder: file, function, least level, dot.
PEERS = {
    "llama": [("ggml/src/ggml-cpu/arch/arm/repack.cpp", f"ggml_{kind}_q4_0_{tile}_q8_0", level, dot)
              for kind in ("gemv", "gemm") for tile, level, dot in (("4x4", 1, "sdot"), ("4x8", 2, "smmla"))],
    "kleidiai": [(f"kai/ukernels/matmul/matmul_clamp_f32_qsi8d32p_qsi4c32p/"
                  f"kai_matmul_clamp_f32_qsi8d32p{tile}_asm.S", f"qsi8d32p{tile}", level, dot)
                 for tile, level, dot in (("1x4_qsi4c32p4x4_1x4_neon_dotprod", 1, "sdot"),
                                          ("1x8_qsi4c32p4x8_1x4x32_neon_dotprod", 1, "sdot"),
                                          ("4x4_qsi4c32p4x4_16x4_neon_dotprod", 1, "sdot"),
                                          ("4x8_qsi4c32p4x8_16x4_neon_i8mm", 2, "smmla"),
                                          ("4x8_qsi4c32p8x8_16x8_sve_i8mm", 3, "smmla"))],
}


def peers(options, cpu, folder, name):
    root = getattr(options, name)
    for source, function, level, dot in PEERS[name] if root else []:
        if level > LEVEL.get(cpu, 3) or options.row not in function:
            continue
        includes = ["", "ggml/include", "ggml/src", "ggml/src/ggml-cpu"]
        file = f"{folder}/peer.o"
        subprocess.run(["clang-22", "--target=aarch64-linux-gnu", "-O3", f"-mcpu={cpu}", "-w", "-c",
                        *[f"-I{root}/{path}" for path in includes], f"{root}/{source}", "-o", file], check=True)
        bits = VECTOR_BITS.get(cpu, 128) if "sve" in function else 128
        # Hand-written loops have labels that look like functions.
        body = disassemble(file, function if source.endswith("cpp") else "")
        flow = Flow(body)
        hot = hot_loops(flow, bits)[0]
        executed = flow.executed(hot, {})
        if not any(i.name == "fmla" for i in executed):
            # The loop is over groups of 32 that share a scale, which in Q4_0 is one.
            executed = flow.executed(flow.around(hot)[0], {hot: 1})
        macs = sum(i.multiplications(bits) for i in executed)
        rate = macs / cycles(executed, cpu, 100)[0]
        # A GEMV may multiply with half of an smmla, or with sdot where it has it.
        used = "sdot" if any(i.name == "sdot" for i in executed) else dot
        print_row(f"{name}: {function}", cpu, rate, peak(cpu, used, bits))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/host")
    parser.add_argument("--cpu", action="append")
    parser.add_argument("--row", default="")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--panels", type=int, default=4)
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
