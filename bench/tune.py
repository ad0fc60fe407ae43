#!/usr/bin/env python3
"""Searches for the best schedules of kernels (include/qwen/CodeGen/Schedule/Schedules.def).

    bench/tune.py [--build build/host] [--cpu CPU] [--fields order,tokens,vectors,unroll,inTurn]
                  [--show 8] [--check COMMAND] KERNEL...

Makes each kernel with every combination of the values of the fields (`make-kernels --emit=schedule`); other fields keep the
table's value. Fields are those of the kernel's order, the loop nest. If `order` is among them, it searches each order that the
kernel has code for, with the fields of that order. With --cpu, a static model gives multiplications a cycle (bench/mca.py describes it). It has no memory, so it
cannot judge prefetch and long strips. Without --cpu, bench-kernels measures GMAC/s on this machine: the best of several turns
over all candidates, in cache or, with --from memory, from memory.

Prints the best candidates and the table's schedule. --check runs KernelTest over the best one, which must have the same bits:
`--check build/host/bin/KernelTest`, or for Arm `--check "qemu-aarch64-static -cpu max build/aarch64/bin/KernelTest"`.
"""

import argparse
import itertools
import json
import os
import subprocess
import tempfile

# A candidate must be this much faster than the table to be worth a change; models and clocks are not more exact.
WORTH = 1.02

# The fields of tiles, as far as the kernel's order has them.
DEFAULT_FIELDS = "tokens,vectors,unroll,inTurn"


def fields_of(options, kernel, schedule=""):
    """The value of each field of a kernel, its order among them, in the table or with the changes, and its choices."""
    change = [f"--schedule={schedule}"] if schedule else []
    text = run([f"{options.build}/bin/make-kernels", "--emit=schedule", f"--kernel={kernel}", *change, options.target, "-"])
    found = {}
    for line in text.splitlines():
        name, value = line.split(" = ")
        first, choices = value.split(" of ")
        found[name] = first, choices.split()
    return found


def run(command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, **kwargs)
    if done.returncode:
        raise ValueError(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def make(options, kernel, schedule, file):
    run([f"{options.build}/bin/make-kernels", f"--kernel={kernel}", f"--schedule={schedule}", options.target, file])


def modelled(options, kernel, schedule, file):
    """Multiplications a cycle of the kernel's code in `file`."""
    found = json.loads(run([f"{options.build}/bin/model-kernel", file, kernel, options.cpu, schedule]))
    return found["macs"] / found["cycles"]


def timed(options, kernel, file):
    """GMAC/s of the kernel's code in `file` on this machine."""
    text = run([f"{options.build}/bin/bench-kernels", file, f"--benchmark_filter={kernel}/{options.source}$",
                "--benchmark_min_time=0.1", "--benchmark_format=json"])
    return json.loads(text)["benchmarks"][0]["GMAC/s"]


def candidates(options, kernel, names):
    """All combinations of the named fields, as arguments of --schedule. Orders lack fields of others."""
    own = fields_of(options, kernel)
    for order in own["order"][1] if "order" in names else [own["order"][0]]:
        fields = dict(fields_of(options, kernel, f"order={order}"), order=(order, [order]))
        searched = [name for name in names if name == "order" or len(fields.get(name, ((), ()))[1]) > 1]
        for values in itertools.product(*(fields[name][1] for name in searched)):
            yield ",".join(f"{name}={value}" for name, value in zip(searched, values))


def tune(options, kernel, folder):
    fields = fields_of(options, kernel)
    names = options.fields.split(",")
    unknown = [name for name in names if name not in fields]
    if unknown and "order" not in names and options.fields != DEFAULT_FIELDS:
        raise ValueError(f"{kernel} has no field '{unknown[0]}' but {', '.join(fields)}")
    names.sort(key="order".__ne__)
    own = ",".join(f"{name}={fields[name][0]}" for name in names if name == "order" or len(fields.get(name, ((), ()))[1]) > 1)
    files, rates, refused = {}, {}, 0
    for number, schedule in enumerate(candidates(options, kernel, names)):
        file = f"{folder}/{number}.so"
        try:
            make(options, kernel, schedule, file)
            files[schedule] = file
            if options.cpu:
                rates[schedule] = modelled(options, kernel, schedule, file)
        except ValueError:
            refused += 1
            if schedule == own:
                raise
    for _ in range(0 if options.cpu else options.turns):
        for schedule, file in files.items():
            rates[schedule] = max(rates.get(schedule, 0), timed(options, kernel, file))
    order = sorted(rates, key=rates.get, reverse=True)
    unit = "MAC/cycle" if options.cpu else "GMAC/s"
    print(f"{kernel} on {options.cpu or 'this machine'}, {unit}; {len(rates)} candidates, {refused} refused")
    for schedule in order:
        if schedule == own or schedule in order[:options.show]:
            print(f"  {rates[schedule]:7.2f}  {schedule}{'  <- the table' * (schedule == own)}")
    best = order[0]
    worth = rates[best] > WORTH * rates[own]
    print(f"  {best}: {100 * (rates[best] / rates[own] - 1):.1f}% over the table, {'worth a change' if worth else 'not worth a change'}")
    if options.check:
        environment = dict(os.environ, QWEN_KERNELS=files[best], QWEN_MODELLED_KERNELS="")
        run([*options.check.split(), f"--gtest_filter=*{kernel}"], env=environment)
        print("  KernelTest: the same bits")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/host")
    parser.add_argument("--cpu")
    parser.add_argument("--fields", default=DEFAULT_FIELDS)
    parser.add_argument("--from", dest="source", choices=["cache", "memory"], default="cache")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--show", type=int, default=8)
    parser.add_argument("--check")
    parser.add_argument("kernels", nargs="+", metavar="KERNEL")
    options = parser.parse_args()
    options.target = options.cpu or "native"
    for kernel in options.kernels:
        with tempfile.TemporaryDirectory() as folder:
            try:
                tune(options, kernel, folder)
            except ValueError as error:
                raise SystemExit(f"tune: {error}") from error


if __name__ == "__main__":
    main()
