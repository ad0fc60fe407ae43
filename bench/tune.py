#!/usr/bin/env python3
"""Searches the schedules of rows of the kernel table (include/qwen/CodeGen/Schedule/Schedules.def).

    bench/tune.py [--build build/host] [--cpu CPU] [--fields tokens,vectors,unroll,inTurn,strip]
                  [--show 8] [--check COMMAND] ROW...

For each row, every combination of what the fields may be (`make-kernels --emit=schedule`) is made and valued, the others
stay as in the table. With --cpu by static model, in multiplications a cycle (bench/mca.py says what counts; no memory,
so that prefetch and a wish for long strips are not its to judge). Without, by the clock on this machine: GMAC/s of
bench-kernels, the best of several turns over all candidates, each in cache, and from memory for --from memory.

Prints the best candidates, the table's own among them. --check runs KernelTest over the best one, which must have the
same bits: `--check build/host/bin/KernelTest`, or for Arm `--check "qemu-aarch64-static -cpu max
build/aarch64/bin/KernelTest"`.
"""

import argparse
import itertools
import json
import os
import subprocess
import tempfile

# How much better than the table a candidate must be to be worth a change: less is within what models err and clocks jitter.
WORTH = 1.02


def fields_of(options, row):
    """The table's value of each field of a row, and its choices."""
    text = run([f"{options.build}/bin/make-kernels", "--emit=schedule", f"--kernel={row}", options.target, "-"])
    found = {}
    for line in text.splitlines():
        name, value = line.split(" = ")
        first, choices = value.split(" of ")
        found[name] = int(first), [int(choice) for choice in choices.split()]
    return found


def run(command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, **kwargs)
    if done.returncode:
        raise ValueError(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def make(options, row, schedule, file):
    run([f"{options.build}/bin/make-kernels", f"--kernel={row}", f"--schedule={schedule}", options.target, file])


def modelled(options, row, schedule, file):
    """Multiplications a cycle of the row's code in `file`."""
    found = json.loads(run([f"{options.build}/bin/model-kernel", file, row, options.cpu, schedule]))
    return found["macs"] / found["cycles"]


def timed(options, row, file):
    """GMAC/s of the row's code in `file` on this machine."""
    text = run([f"{options.build}/bin/bench-kernels", file, f"--benchmark_filter={row}/{options.source}$",
                "--benchmark_min_time=0.1", "--benchmark_format=json"])
    return json.loads(text)["benchmarks"][0]["GMAC/s"]


def candidates(fields, names):
    """All combinations of the named fields, as --schedule takes them."""
    names = [name for name in names if len(fields[name][1]) > 1]
    for values in itertools.product(*(fields[name][1] for name in names)):
        yield ",".join(f"{name}={value}" for name, value in zip(names, values))


def tune(options, row, folder):
    fields = fields_of(options, row)
    unknown = [name for name in options.fields.split(",") if name not in fields]
    if unknown:
        raise ValueError(f"{row} has no field '{unknown[0]}' but {', '.join(fields)}")
    names = [name for name in options.fields.split(",") if len(fields[name][1]) > 1]
    own = ",".join(f"{name}={fields[name][0]}" for name in names)
    files, rates, refused = {}, {}, 0
    for number, schedule in enumerate(candidates(fields, names)):
        file = f"{folder}/{number}.so"
        try:
            make(options, row, schedule, file)
            files[schedule] = file
            if options.cpu:
                rates[schedule] = modelled(options, row, schedule, file)
        except ValueError:
            refused += 1
            if schedule == own:
                raise
    for _ in range(0 if options.cpu else options.turns):
        for schedule, file in files.items():
            rates[schedule] = max(rates.get(schedule, 0), timed(options, row, file))
    order = sorted(rates, key=rates.get, reverse=True)
    unit = "MAC/cycle" if options.cpu else "GMAC/s"
    print(f"{row} on {options.cpu or 'this machine'}, {unit}; {len(rates)} candidates, {refused} refused")
    for schedule in order:
        if schedule == own or schedule in order[:options.show]:
            print(f"  {rates[schedule]:7.2f}  {schedule}{'  <- the table' * (schedule == own)}")
    best = order[0]
    worth = rates[best] > WORTH * rates[own]
    print(f"  {best}: {100 * (rates[best] / rates[own] - 1):.1f}% over the table, {'worth a change' if worth else 'not worth a change'}")
    if options.check:
        environment = dict(os.environ, QWEN_KERNELS=files[best], QWEN_MODELLED_KERNELS="")
        run([*options.check.split(), f"--gtest_filter=*{row}"], env=environment)
        print("  KernelTest: the same bits")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/host")
    parser.add_argument("--cpu")
    parser.add_argument("--fields", default="tokens,vectors,unroll,inTurn")
    parser.add_argument("--from", dest="source", choices=["cache", "memory"], default="cache")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--show", type=int, default=8)
    parser.add_argument("--check")
    parser.add_argument("rows", nargs="+", metavar="ROW")
    options = parser.parse_args()
    options.target = options.cpu or "native"
    for row in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            try:
                tune(options, row, folder)
            except ValueError as error:
                raise SystemExit(f"tune: {error}") from error


if __name__ == "__main__":
    main()
