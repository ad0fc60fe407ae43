#!/usr/bin/env python3
"""Compiles and runs random checkpoints with the shapes of published models, and measures time and memory.

  .venv/bin/python bench/sizes.py WORKDIR [--models NAME ...] [--weights FORMAT ...] [--limit GIB] [--no-run]

Prints one line for each model and weight format: compile seconds, the peak anonymous memory of qwen-opt and the bytes of the
largest tensor (in bf16), the size of the file, prefill and decode tokens/s, load milliseconds, and the peak resident memory
and its bound 1.02 x file + arena + KV pages + 16 MiB. --limit runs qwen-opt in a control group of GIB GiB, including its page
cache (needs root and cgroup v1 or v2). Missing checkpoints are made (15 GB for 7b) and kept; compiled files are removed. A
file that is larger than half of the memory does not run; --no-run runs none.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/host/bin"
MODELS = ["qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b", "qwen3-0.6b", "qwen3-4b"]
MIB = 1 << 20
PROMPT, DECODE = 512, 64


class Cgroup:
    """A group of processes with limited memory, or without a limit if `gib` is None."""

    def __init__(self, gib):
        self.path = None
        if gib is None:
            return
        v1 = pathlib.Path("/sys/fs/cgroup/memory")
        self.path = (v1 if v1.is_dir() else pathlib.Path("/sys/fs/cgroup")) / f"qwen-sizes-{os.getpid()}"
        self.path.mkdir()
        (self.path / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")).write_text(str(gib << 30))

    def enter(self):
        if self.path:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        if self.path:
            self.path.rmdir()


def status_bytes(pid, key):
    """A size of /proc/PID/status; 0 once the process has ended."""
    try:
        for line in open(f"/proc/{pid}/status"):
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def compile_model(checkpoint, out, weights, cgroup):
    """Seconds and peak RssAnon of qwen-opt."""
    start = time.monotonic()
    process = subprocess.Popen([BIN / "qwen-opt", checkpoint, "-o", out, "--weights", weights], preexec_fn=cgroup.enter,
                               stderr=subprocess.PIPE, text=True)
    peak = 0

    def watch():
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, status_bytes(process.pid, "RssAnon"))
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    errors = process.communicate()[1]
    watcher.join()
    if process.returncode:
        sys.exit(f"{checkpoint}: {errors.strip()}")
    return time.monotonic() - start, peak


def largest_tensor(checkpoint):
    largest = 0
    for file in checkpoint.glob("*.safetensors"):
        with open(file, "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        for name, tensor in header.items():
            if name != "__metadata__":
                begin, end = tensor["data_offsets"]
                largest = max(largest, end - begin)
    return largest


def run_model(out):
    """The line of one run: speed, load time, memory and its bound."""
    info = json.loads(subprocess.run([BIN / "qwen-run", "info", out, "--json"], check=True, capture_output=True).stdout)
    bench = json.loads(subprocess.run([BIN / "qwen-run", "bench", out, "--json", "--prompt-tokens", str(PROMPT), "-n", str(DECODE),
                                       "--repetitions", "1"], check=True, capture_output=True).stdout)
    pages = -(-(PROMPT + DECODE) // info["kv"]["page_tokens"])
    bound = 1.02 * bench["file_bytes"] + info["programs"][0]["arena_bytes"] + pages * info["kv"]["page_bytes"] + 16 * MIB
    peak = bench["peak_rss_bytes"]
    return (f"prefill {bench['prefill_tokens_per_second']['median']:.1f} and decode "
            f"{bench['decode_tokens_per_second']['median']:.2f} tokens/s, {bench['threads']} threads, load "
            f"{bench['load_seconds'] * 1e3:.1f} ms, peak RSS {peak / MIB:.1f} MiB of {bound / MIB:.1f} allowed"
            f"{'' if peak <= bound else ' EXCEEDED'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--weights", nargs="+", default=["q4_0", "q8_0"])
    parser.add_argument("--limit", type=int)
    parser.add_argument("--no-run", action="store_true")
    args = parser.parse_args()
    for model in args.models:
        checkpoint = args.workdir / model
        if not (checkpoint / "config.json").exists():
            subprocess.run([sys.executable, ROOT / "bench/make_checkpoint.py", model, checkpoint, "--tokenizer",
                            ROOT / "test/Inputs/tokenizer/qwen2"], check=True)
        for weights in args.weights:
            out = args.workdir / f"{model}.{weights}.qwen"
            cgroup = Cgroup(args.limit)
            seconds, peak = compile_model(checkpoint, out, weights, cgroup)
            cgroup.remove()
            size = out.stat().st_size
            print(f"{model} {weights}: compiled in {seconds:.1f} s, RssAnon {peak / MIB:.0f} MiB (largest tensor "
                  f"{largest_tensor(checkpoint) / MIB:.0f} MiB), file {size} bytes", flush=True)
            if not args.no_run and size < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2:
                print("  " + run_model(out), flush=True)
            out.unlink()


if __name__ == "__main__":
    main()
