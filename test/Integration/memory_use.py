"""The memory of a running model: pages of the cache on demand, one copy of the weights, no allocation for a token.

  memory_use.py F32 Q4_0 WORKDIR COUNT_ALLOCATIONS.so      F32 and Q4_0 are compiled models
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import numpy as np

from checks import Checks, compile_model, run, write_checkpoint

F32, Q4_0, WORK, COUNTER = *sys.argv[1:3], pathlib.Path(sys.argv[3]), sys.argv[4]
MIB = 1 << 20
checks = Checks()


def pages_as_needed():
    """A context of 32768 takes no memory before its use, and then the size that `info` prints."""
    shape = ("qwen3", 64, 8, 4, 4, 64, 64, 300, True)
    write_checkpoint(WORK / "checkpoint", shape, np.random.default_rng(1), max_position_embeddings=32768)
    model = compile_model(WORK / "checkpoint", WORK / "long.qwen")
    info = json.loads(run(["qwen-run", "info", model, "--json"]))
    token_bytes, forward = info["kv"]["token_bytes"], info["programs"][0]
    checks.check(token_bytes == 2 * 8 * 4 * (64 + 4), f"{token_bytes} bytes a token")
    # All calls of both prompts have the maximum size.
    short = forward["limits"]["tokens"]
    long = short + 1024
    resident = {}
    for prompt in (short, long):
        bench = json.loads(run(["qwen-run", "bench", model, "--prompt-tokens", prompt, "-n", 1, "--repetitions", 1, "-t", 2, "--json"]))
        resident[prompt] = bench["peak_rss_bytes"]
        pages = -(-(prompt + 1) // 64) * 64 * token_bytes
        most = 1.02 * bench["file_bytes"] + forward["arena_bytes"] + pages + 16 * MIB
        checks.check(bench["peak_rss_bytes"] <= most, f"{bench['peak_rss_bytes']} bytes with {prompt} tokens, more than {most:.0f}")
        checks.check(bench["vm_bytes"] > 32768 * token_bytes, f"the pool is not of 32768 tokens: {bench['vm_bytes']}")
    grown, needed = resident[long] - resident[short], (long - short) * token_bytes
    print(f"{long - short} tokens: {grown} bytes for {needed} of the cache")
    checks.check(abs(grown - needed) < MIB, f"memory grew by {grown} when the cache did by {needed}")


def weights_of(process, model, begin):
    """Bytes in /proc/PID/smaps of the mappings of `model` from offset `begin` on."""
    sums, inside = {"Rss": 0, "Pss": 0, "Private_Clean": 0, "Private_Dirty": 0}, False
    for line in pathlib.Path(f"/proc/{process.pid}/smaps").read_text().splitlines():
        if found := re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ ([0-9a-f]+) \S+ \d+ *(.*)", line):
            inside = found[2] == str(model) and int(found[1], 16) >= begin
        elif inside and (key := line.split(":")[0]) in sums:
            sums[key] += int(line.split()[1]) * 1024
    return sums


def one_copy():
    """Two processes read all weights of a file that no other test maps."""
    model = pathlib.Path(shutil.copy(F32, WORK / "f32.qwen")).resolve()
    size = json.loads(run(["qwen-run", "info", model, "--json"]))["bytes"]["weights"]
    command = ["qwen-run", "generate", str(model), "--ids", "5,6,7", "-n", "900", "--ignore-eos", "-t", "1"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for process in processes:
            process.stdout.read(16)
            process.send_signal(signal.SIGSTOP)
        for process in processes:
            found = weights_of(process, model, model.stat().st_size - size)
            print(f"weights of {size} bytes: {found}")
            checks.check(found["Rss"] > 0.98 * size, f"resident are {found} of {size} bytes")
            checks.check(abs(found["Pss"] - found["Rss"] / 2) < 0.01 * size, f"not shared: {found}")
            checks.check(found["Private_Clean"] + found["Private_Dirty"] < 0.01 * size, f"of one's own: {found}")
    finally:
        for process in processes:
            process.kill()
            process.wait()


def allocations(*command):
    result = subprocess.run(["qwen-run", *map(str, command)], capture_output=True, text=True, check=True,
                            env=os.environ | {"LD_PRELOAD": COUNTER})
    return int(re.fullmatch(r"allocations (\d+)\n", result.stderr)[1])


def no_allocation():
    """56 more tokens need no more allocations."""
    for prompt in (["--ids", "5,6,7"], ["-p", "Once upon a time"]):
        counts = [allocations("generate", Q4_0, *prompt, "-n", n, "--ignore-eos", "--seed", 3, "--temperature", "0.8", "-t", 2)
                  for n in (8, 64)]
        print(f"{prompt}: allocations {counts}")
        checks.check(counts[0] == counts[1] > 0, f"{prompt}: {counts[1] - counts[0]} allocations for 56 tokens")


WORK.mkdir(parents=True, exist_ok=True)
pages_as_needed()
one_copy()
no_allocation()
checks.finish()
