"""With too little address space or memory, one line states the need; with enough, the answer is the usual one.

  memory_limits.py CHECKPOINT MODEL WORKDIR      MODEL is CHECKPOINT, compiled
"""
import os
import pathlib
import resource
import shutil
import subprocess
import sys

from checks import Checks, matches
from errors_elsewhere import COMPILE_IN_GROUP, COMPILE_IN_LITTLE, RUN_IN_GROUP, RUN_IN_LITTLE

CHECKPOINT, model, WORK = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
checks = Checks()


def limited(kib, *command):
    limit = kib * 1024
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))


def check_refused(result, messages, what):
    error = result.stderr.removesuffix("\n")
    checks.check(result.returncode == 4 and any(matches(message, error) for message in messages), what)


def sweep(name, first, last, step, needed, expected, *command):
    """Both outcomes must occur. Below its own size a program does not start, and its loader reports that."""
    refused = good = 0
    for kib in range(first, last, step):
        result = limited(kib, *command)
        what = f"{name} in {kib} KiB: {result}"
        if result.returncode == 127 and "loading shared libraries" in result.stderr:
            continue
        if result.returncode == 0:
            good += 1
            checks.check(result.stdout == expected, what)
            continue
        refused += 1
        check_refused(result, needed, what)
    checks.check(refused and good, f"{name}: {refused} limits were too small and {good} were not")


if b"__asan_init" in pathlib.Path(shutil.which("qwen-run")).read_bytes():
    print("not tried: AddressSanitizer itself needs more address space than any limit")
    sys.exit(0)
WORK.mkdir(parents=True, exist_ok=True)
command = ["qwen-run", "generate", model, "--ids", "2,3,4", "-n", "4"]
answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
# In less than its own size, the system ends a program before it starts.
own = pathlib.Path(shutil.which("qwen-run")).stat().st_size >> 10
sweep("qwen-run", own, 64 << 10, 1999, RUN_IN_LITTLE, answer, *command, "-t", "2")
out = WORK / "limited.qwen"
told = matches(COMPILE_IN_LITTLE, limited(200 << 10, "qwen-opt", CHECKPOINT, "-o", out).stderr.removesuffix("\n"))
checks.check(told, "qwen-opt in 200 MiB does not say what it needs")
if told:
    least = int(float(told[1])) << 10
    check_refused(limited(least - 1024, "qwen-opt", CHECKPOINT, "-o", out), [COMPILE_IN_LITTLE], "one MiB less")
    for kib in range(least + 1024, least + (64 << 10), 16 << 10):
        result = limited(kib, "qwen-opt", CHECKPOINT, "-o", out)
        checks.check(result.returncode == 0, f"qwen-opt in {kib} KiB, which it said to be enough: {result}")

GROUPS = pathlib.Path("/sys/fs/cgroup")
if (GROUPS / "memory").is_dir():
    GROUPS = GROUPS / "memory"
GROUP = GROUPS / f"qwen-test-{os.getpid()}"


def grouped(mib, *command):
    """Runs a command in a control group with limited memory."""
    limit = "memory.limit_in_bytes" if GROUPS.name == "memory" else "memory.max"
    GROUP.mkdir()
    try:
        (GROUP / limit).write_text(str(mib << 20))
        return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120,
                              preexec_fn=lambda: (GROUP / "cgroup.procs").write_text(str(os.getpid())))
    finally:
        GROUP.rmdir()


def group_sweep(name, limits, needed, expected, *command):
    """The smallest limit fails, and the largest one does not."""
    for mib in limits:
        result = grouped(mib, *command)
        what = f"{name} in a group of {mib} MiB: {result}"
        if mib == limits[-1]:
            checks.check(result.returncode == 0 and result.stdout == expected, what)
            continue
        check_refused(result, needed, what)


try:
    grouped(64, "true")
except OSError as error:
    print(f"control groups are not tried, since this process may not make one: {error}")
else:
    group_sweep("qwen-run", [8, 20, 64], RUN_IN_GROUP, answer, *command)
    group_sweep("qwen-opt", [32, 100, 256], COMPILE_IN_GROUP, "",
                "qwen-opt", CHECKPOINT, "-o", out)
checks.check(not list(WORK.glob("limited.qwen.*")), f"left files: {list(WORK.iterdir())}")
checks.finish()
