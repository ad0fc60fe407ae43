"""Every kind of damage to an artifact stops qwen-run with one clear line.

  bad_artifact.py CHECKPOINT WORKDIR AARCH64_QWEN_RUN
"""
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time

from checks import Checks, compile_model, own_lines

CHECKPOINT, WORK, AARCH64 = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
checks = Checks()

# ArtifactHeader (include/qwen/ABI/Artifact.h): offsets of its fields.
MAGIC = b"QWENAOT\0"
FORMAT = 8
RANGES = dict(code=32, manifest=48, tokenizer=64, chatTemplate=80, weightChecksums=96, weights=112)


def attempt(name, data, *needles, command=("logits",), options=("--ids", "2,3,4", "-o")):
    path, out = WORK / "bad.qwen", WORK / "bad.npy"
    path.write_bytes(data)
    out.unlink(missing_ok=True)
    extra = [*options, out] if command == ("logits",) else options
    result = subprocess.run(["qwen-run", *command, path, *extra], capture_output=True, text=True, timeout=60)
    lines = result.stderr.splitlines()
    checks.check(result.returncode == 1, f"{name}: exit code is {result.returncode}: {result.stderr}")
    checks.check(len(lines) == 1 and lines[0].startswith("qwen-run: "), f"{name}: {result.stderr!r}")
    for needle in needles:
        checks.check(needle in result.stderr, f"{name}: '{needle}' is not in: {result.stderr}")
    checks.check(not out.exists(), f"{name}: left an output file")


def patched(data, at, value):
    return data[:at] + value + data[at + len(value):]


def damage(good):
    header = good.index(MAGIC)
    ranges = {name: struct.unpack_from("<QQ", good, header + at) for name, at in RANGES.items()}

    attempt("empty", b"", "not")
    attempt("text", b"hello, this is no artifact\n" * 100, "not")
    attempt("other elf", pathlib.Path("/bin/true").read_bytes(), "not")
    attempt("other version", patched(good, header + FORMAT, struct.pack("<I", 999)), "999", "qwen-opt")
    for name, (offset, size) in ranges.items():
        if size and name != "weights":
            attempt(f"flipped byte in {name}", patched(good, offset + size // 2, bytes([good[offset + size // 2] ^ 0x10])))
        for border in {offset, offset + 1, offset + size // 2, offset + size - 1} - {0, len(good)}:
            attempt(f"cut in {name} at {border}", good[:border])
    attempt("longer", good + b"x")
    # The header, byte by byte.
    for at in range(header, header + 144 + 56, 3):
        attempt(f"flipped header byte {at - header}", patched(good, at, bytes([good[at] ^ 0xFF])))
    offset, size = ranges["weights"]
    flipped = patched(good, offset + size // 2, bytes([good[offset + size // 2] ^ 1]))
    attempt("flipped weight", flipped, "weight", command=("info",), options=("--check",))
    for check in ("background", "now"):
        attempt(f"flipped weight, --check {check}", flipped, "of its weights does not match",
                options=("--check", check, "--ids", "2,3,4", "-o"))


def prompts(model):
    def refuse(name, *command, needles, runner=("qwen-run",)):
        result = subprocess.run([*runner, *map(str, command)], capture_output=True, text=True, timeout=60)
        checks.check(result.returncode == 1 and len(result.stderr.splitlines()) == 1, f"{name}: {result}")
        for needle in needles:
            checks.check(needle in result.stderr, f"{name}: '{needle}' is not in: {result.stderr}")

    ids = ",".join(["2"] * 300)
    refuse("long prompt", "generate", model, "--ids", ids, needles=["300", "256"])
    refuse("id out of range", "generate", model, "--ids", "2,999999", needles=["999999"])
    refuse("negative id", "generate", model, "--ids", "2,-1", needles=["-1"])
    refuse("no such file", "generate", WORK / "nothing.qwen", "--ids", "2", needles=["nothing.qwen"])
    for name in ("generate", "tokenize"):
        refuse(f"{name} without a tokenizer", name, model, "-p", "text", needles=["has no tokenizer", "--ids"])
    refuse("chat without a tokenizer", "chat", model, needles=["has no tokenizer"])
    refuse("perplexity without a tokenizer", "perplexity", model, __file__, needles=["has no tokenizer"])
    arm = compile_model(CHECKPOINT, WORK / "arm.qwen", "--target", "armv8.2-a+dotprod")
    refuse("other architecture", "generate", arm, "--ids", "2", needles=["aarch64", "x86-64"])
    refuse("feature that lacks", "generate", arm, "--ids", "2", needles=["dotprod"],
           runner=["qemu-aarch64-static", "-cpu", "cortex-a72", AARCH64])
    # This error comes before the one about another architecture.
    refuse("output folder", "logits", arm, "--ids", "2", "-o", WORK / "no" / "x.npy", needles=["x.npy"])


def interrupted():
    """A killed compile leaves nothing under the final name; SIGTERM and SIGINT leave no file at all."""
    out = WORK / "killed"
    out.mkdir(exist_ok=True)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        for delay in (0.02, 0.1, 0.2, 0.4):
            for left in out.iterdir():
                left.unlink()
            process = subprocess.Popen(["qwen-opt", CHECKPOINT, "-o", out / "model.qwen"], stderr=subprocess.DEVNULL)
            time.sleep(delay)
            process.send_signal(number)
            process.wait()
            files = [path.name for path in out.iterdir()]
            if process.returncode == 0:
                checks.check(files == ["model.qwen"], f"signal {number} came late, but files are {files}")
            elif number == signal.SIGKILL:
                checks.check("model.qwen" not in files, f"killed after {delay} s: {files}")
            else:
                checks.check(not files, f"signal {number} after {delay} s: {files}")


def disk_full():
    """A limit on the file's size is like a full disk to a writer. (/dev/full is not a regular file.)"""
    out = WORK / "full"
    out.mkdir(exist_ok=True)
    result = subprocess.run(["sh", "-c", f"ulimit -f 2000; exec qwen-opt {CHECKPOINT} -o {out}/model.qwen"],
                            capture_output=True, text=True)
    checks.check(result.returncode == 1 and len(own_lines(result.stderr)) == 1, f"file size limit: {result}")
    checks.check("model.qwen" in result.stderr, f"file size limit: {result.stderr}")
    checks.check(not list(out.iterdir()), f"file size limit: left {list(out.iterdir())}")
    if os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", out],
                                            capture_output=True).returncode == 0:
        try:
            result = subprocess.run(["qwen-opt", CHECKPOINT, "-o", out / "model.qwen"], capture_output=True, text=True)
            checks.check(result.returncode == 1 and len(own_lines(result.stderr)) == 1, f"full disk: {result}")
            checks.check("space" in result.stderr, f"full disk: {result.stderr}")
            checks.check(not list(out.iterdir()), f"full disk: left {list(out.iterdir())}")
        finally:
            subprocess.run(["umount", out], check=True)
    else:
        print("full disk not tried: mounting a tmpfs needs root")


WORK.mkdir(parents=True, exist_ok=True)
model = compile_model(CHECKPOINT, WORK / "good.qwen")
damage(model.read_bytes())
prompts(model)
interrupted()
disk_full()
checks.finish()
