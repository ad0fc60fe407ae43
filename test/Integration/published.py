"""A model of a published size and its tokenizer: memory of the compiler, load time, text.

  published.py WORKDIR INPUTS      INPUTS has tokenizer/qwen2 and tokenizer/cases.jsonl
"""
import json
import pathlib
import shutil
import subprocess
import sys
import time

from checks import Checks, run

WORK, INPUTS = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
BENCH = pathlib.Path(__file__).parents[2] / "bench"
MIB = 1 << 20
checks = Checks()


def anonymous_bytes(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:")), 0)


def compile_watched(checkpoint, model):
    """Compiles and returns the peak of the anonymous memory."""
    most = 0
    process = subprocess.Popen(["qwen-opt", checkpoint, "-o", model, "--context", "2048"], stderr=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, anonymous_bytes(process.pid))
        time.sleep(0.005)
    checks.check(process.returncode == 0, f"qwen-opt ended with {process.returncode}")
    return most


shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
checkpoint, model = WORK / "checkpoint", WORK / "model.qwen"
run([sys.executable, BENCH / "make_checkpoint.py", "qwen2.5-0.5b", checkpoint, "--tokenizer",
     INPUTS / "tokenizer" / "qwen2", "--zeros"])
most = compile_watched(checkpoint, model)
largest = 151936 * 896 * 2
print(f"anonymous memory of the compiler: {most / MIB:.0f} MiB")
checks.check(0 < most <= 400 * MIB + largest, f"{most / MIB:.0f} MiB of anonymous memory")

for line in (INPUTS / "tokenizer" / "cases.jsonl").read_text().splitlines()[:-1:40]:
    case = json.loads(line)
    output = subprocess.run(["qwen-run", "tokenize", model, "--json"], input=case["text"].encode(),
                            stdout=subprocess.PIPE).stdout
    ids = json.loads(output)["ids"]
    checks.check(ids == case["ids"], f"ids of {case['text']!r} are {ids}")
    decoded = subprocess.run(["qwen-run", "tokenize", model, "--decode"], input=json.dumps(case["ids"]).encode(),
                             stdout=subprocess.PIPE).stdout
    checks.check(decoded == case["decoded"].encode(), f"text of {case['ids']} is {decoded}")

bench = json.loads(run(["qwen-run", "bench", model, "--json", "--prompt-tokens", "8", "-n", "2", "--repetitions", "1"]))
print(f"load: {bench['load_seconds'] * 1e3:.1f} ms, resident at most: {bench['peak_rss_bytes'] / MIB:.0f} MiB, "
      f"file: {bench['file_bytes'] / MIB:.0f} MiB")
# Neither loading nor running copies the weights.
checks.check(bench["peak_rss_bytes"] < bench["file_bytes"] + 200 * MIB, f"{bench['peak_rss_bytes']} bytes resident")
shutil.rmtree(WORK)
checks.finish()
