"""A budget that is killed at each of its stages leaves no file, and the compile that follows makes the same bytes.

  budget.py STORIES WORKDIR
"""
import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

import numpy as np

from checks import Checks, own_lines, write_checkpoint

STORIES, WORK = (pathlib.Path(a) for a in sys.argv[1:])
shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
checks = Checks()


def compile_within(budget, folder, stage=None, part=0):
    """Compiles in `folder` within so many MB, and kills the compile once `part` of a stage is done. Returns status and lines."""
    folder.mkdir(exist_ok=True)
    command = ["qwen-opt", "../model", "-o", "model.qwen", "--max-tokens", "64", "--max-rows", "1", "--calibrate=../text", "--budget",
               f"{budget:.2f}MB", "--save-plan", "plan.json"]
    ours, theirs = socket.socketpair()
    # So few lines fit that the compile waits for them to be read.
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    process = subprocess.Popen([*command, "--progress", str(theirs.fileno())], cwd=folder, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
    theirs.close()
    for line in ours.makefile():
        progress = json.loads(line)
        if progress["stage"] == stage and progress["done"] >= part * progress["total"]:
            process.kill()
            break
    errors = process.communicate()[1]
    ours.close()
    return process.returncode, own_lines(errors)


def files(folder):
    """The names of files, but for a temporary one, which the next compile removes."""
    return sorted(file.name for file in folder.iterdir() if not re.search(r"\.tmp\d+$", file.name))


write_checkpoint(WORK / "model", ("qwen3", 64, 2, 2, 1, 32, 128, 4096, True), np.random.default_rng(1), max_position_embeddings=512)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copy(STORIES / name, WORK / "model")
(WORK / "text").write_bytes((STORIES / "golden" / "val.txt").read_bytes()[:17000])
whole, killed = WORK / "whole", WORK / "killed"
_, lines = compile_within(0.01, whole)
budget = 0.06 + float(re.search(r"which has ([\d.]+)MB$", lines[-1])[1])
status, lines = compile_within(budget, whole)
checks.check(status == 0 and lines[0].startswith("budget: a trial has a KL divergence of "), f"without kills: {lines}")
for stage, part, left in (("measuring losses", 0, []), ("measuring losses", 0.9, []), ("trying the plan", 0.5, []),
                          ("calibrating", 0.9, ["model.qwen.calibration"]), ("packing", 0.1, ["model.qwen.calibration"])):
    status, lines = compile_within(budget, killed, stage, part)
    checks.expect(f"status of a compile killed at {part} of {stage}", status, -signal.SIGKILL)
    checks.expect(f"files that a kill at {part} of {stage} leaves", files(killed), left)
status, lines = compile_within(budget, killed)
checks.expect("status after kills", status, 0)
checks.check(any("steps were finished before" in line for line in lines), f"what was saved is not read: {lines}")
checks.expect("files after kills", sorted(file.name for file in killed.iterdir()), ["model.qwen", "plan.json"])
for name in files(whole):
    checks.check((whole / name).read_bytes() == (killed / name).read_bytes(), f"{name} has other bytes after kills")
checks.finish()
