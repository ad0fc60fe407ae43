#!/usr/bin/env python3
"""Compares the kernels of whole products (bench/Products.cpp) with each other on this machine, by format, shape and number of tokens.

  .venv/bin/python bench/products.py [--isas amx_int8,avx512vnni] [--formats q4_0,q8_0] [--shapes 896x9728] [--tokens 16,32,512] [--repetitions 5]

Makes the kernels of this CPU and runs all calls on one thread in random order, several times. Prints a table in Markdown with the GMAC/s (billions of
multiplications a second) of the first instruction set of `--isas` and, in bold, their ratio to the fastest product of the others: the best
fifth of the repetitions, since neighbours only slow a call down.
"""
import argparse
import collections
import json
import pathlib
import statistics
import subprocess
import tempfile

BIN = pathlib.Path(__file__).resolve().parent.parent / "build/host/bin"


def measure(options, file):
    """GMAC/s by (format, shape, tokens), and there by instruction set."""
    formats = "|".join(options.formats.split(",")) if options.formats else "[a-z0-9_]+"
    text = subprocess.run([BIN / "bench-kernels", file, f"--shapes={options.shapes}", f"--tokens={options.tokens}",
                           f"--benchmark_filter=^linear_({formats})_[0-9]+x16x4_({options.isas.replace(',', '|')})/", f"--benchmark_repetitions={options.repetitions}",
                           f"--benchmark_min_time={options.seconds}", "--benchmark_enable_random_interleaving=true", "--benchmark_format=json"],
                          check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    rates = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in json.loads(text)["benchmarks"]:
        if run["run_type"] != "iteration":
            continue
        kernel, shape, tokens = run["name"].split("/")[:3]
        name, isa = kernel.removeprefix("linear_").split("x16x4_")
        rates[name.rsplit("_", 1)[0], shape, int(tokens)][isa, name.rsplit("_", 1)[1]].append(run["GMAC/s"])
    return {case: {kernel: statistics.quantiles(values, n=5)[-1] for kernel, values in found.items()} for case, found in rates.items()}


def table(options, rates):
    tokens = [int(count) for count in options.tokens.split(",")]
    lines = ["| | " + " | ".join(f"M {count}" for count in tokens) + " |", "|---" * (len(tokens) + 1) + "|"]
    for name, shape in dict.fromkeys((name, shape) for name, shape, _ in rates):
        cells = []
        for count in tokens:
            found = rates[name, shape, count]
            first = options.isas.split(",")[0]
            own = [rate for (isa, _), rate in found.items() if isa == first]
            others = [rate for (isa, _), rate in found.items() if isa != first]
            cells.append(f"{max(own):.0f} **{max(own) / max(others):.2f}**" if own and others else "-")
        lines.append(f"| {name}, {shape} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isas", default="amx_int8,avx512vnni")
    parser.add_argument("--formats", default="")
    parser.add_argument("--shapes", default="896x9728")
    parser.add_argument("--tokens", default="16,32,64,128,512")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.02, help="of each repetition")
    parser.add_argument("--kernels", help="a file that make-kernels made, in place of this CPU's kernels")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = options.kernels
        if not file:
            file = pathlib.Path(folder) / "kernels.so"
            subprocess.run([BIN / "make-kernels", "native", file], check=True)
        print(table(options, measure(options, file)))


if __name__ == "__main__":
    main()
