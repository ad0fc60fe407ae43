"""qwen-train: each method for some steps on a tiny model, runs that are killed, and what is refused.

  train.py STORIES FOLDER      STORIES is models/stories
"""
import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from checks import Checks, run
from qwen_compiler.train import _command
from train_small import compiled, small

STORIES, FOLDER = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
checks = Checks()
shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)


def words_of(name, *options, data=("text.txt",), checkpoint="tiny"):
    """The arguments of qwen-train."""
    return list(map(str, [FOLDER / checkpoint, "-o", FOLDER / name, "--window", "32", "--threads", "1", "--device", "cpu", *options,
                          "--data", *(FOLDER / each for each in data)]))


def command(*arguments, **more):
    """Runs qwen-train in this process, which has imported PyTorch. Returns its status and what it prints."""
    sys.argv = ["qwen-train", *words_of(*arguments, **more)]
    out = io.StringIO()
    with contextlib.redirect_stderr(out), contextlib.redirect_stdout(out):
        try:
            status = _command.main()
        except SystemExit as end:
            status = end.code
    return status, out.getvalue()


def check_command(name, *options):
    status, said = command(name, "--batch", "4", "--epochs", "2", *options)
    checks.check(status == 0, f"{name}: {said}")
    return json.loads((FOLDER / name / "training.json").read_text())["history"]


def check_refused(expected, *options, **more):
    status, said = command("refused", *options, **more)
    checks.check(status and said.count("\n") == 1 and expected in said, f"{status}, {said!r}: not {expected!r}")
    for name in ("refused", "refused.training"):
        checks.check(not (FOLDER / name).exists(), f"{expected}: {name} is left")


def write_tiny():
    """A checkpoint with the tokenizer of stories, another one with other tokens, and texts of each kind."""
    small("tied", vocab_size=4096).save_pretrained(FOLDER / "tiny")
    for file in STORIES.glob("tokenizer*"):
        shutil.copy(file, FOLDER / "tiny")
    shutil.copytree(FOLDER / "tiny", FOLDER / "other")
    tokens = json.loads((FOLDER / "tiny/tokenizer.json").read_text())
    tokens["added_tokens"][0]["content"] = "<|other|>"
    (FOLDER / "other/tokenizer.json").write_text(json.dumps(tokens))
    text = (STORIES / "golden/val.txt").read_text()[:16000]
    (FOLDER / "text.txt").write_text(text)
    turns = [text[i:i + 200] for i in range(0, len(text), 200)]
    (FOLDER / "chat.jsonl").write_text("".join(json.dumps({"messages": [{"role": "user", "content": a}, {"role": "assistant", "content": b}]}) + "\n"
                                               for a, b in zip(turns[::2], turns[1::2])))
    (FOLDER / "alpaca.json").write_text(json.dumps([{"instruction": a, "input": "", "output": b} for a, b in zip(turns[::2], turns[1::2])]))
    (FOLDER / "empty.txt").write_text("<|endoftext|>\n")
    (FOLDER / "broken.jsonl").write_text('{"messages": [\n')
    (FOLDER / "else.jsonl").write_text('{"prompt": "a"}\n')


write_tiny()
for method, format, rate in (("qat", "q4_0", 3e-4), ("lsq", "q4_g128", 3e-4), ("scales", "q4_m_32", 3e-5), ("scales", "q5_0", 1e-4), ("qalora", "q4_m_64", 5e-3)):
    name = f"{method}-{format}"
    # An adapter is for another text, the rest makes up for roundings.
    teacher = [] if method == "qalora" else ["--teacher", FOLDER / "tiny"]
    measure = check_command(name, "--method", method, "--format", format, "--lr", rate, *teacher)["KL" if teacher else "loss"]
    checks.check(measure[-1][1] < measure[0][1], f"{name}: {measure[0]} becomes {measure[-1]}")
    said = compiled(FOLDER / name)[1]
    checks.check(f"kept exactly in {format}" in said and "converted" not in said, f"{name}: {said}")
measure = check_command("bf16", "--method", "qat", "--lr", 3e-4, "--teacher", FOLDER / "tiny", "--bf16-products")["KL"]
checks.check(measure[-1][1] < measure[0][1], f"--bf16-products: {measure[0]} becomes {measure[-1]}")
history = check_command("lora", "--method", "lora", "--lr", "1e-2")
checks.check(history["loss"][-1][1] < history["loss"][0][1], f"lora: {history['loss']}")
run(["qwen-opt", FOLDER / "tiny", "-o", FOLDER / "lora.qwen", "--lora", FOLDER / "lora"])
check_command("recovered", "--method", "qat", "--teacher", FOLDER / "tiny", "--prune", "sleb:1")
checks.expect("layers", json.loads((FOLDER / "recovered/config.json").read_text())["num_hidden_layers"], 1)
for kind in ("chat.jsonl", "alpaca.json"):
    status, said = command(kind + "-out", "--method", "qat", data=(kind,))
    checks.check(status == 0, f"{kind}: {said}")

for _ in range(2):
    table = command("swept", "--method", "scales", "--sweep", "lr=0.001,0.01", "--evaluations", "1")[1].splitlines()
    checks.check(len(table) == 4 and table[0].startswith("| lr, loss after tokens | 0 | ") and table[3].startswith("| 0.01 | "), f"sweep: {table}")
checks.check((FOLDER / "swept-lr=0.01/model.safetensors").exists(), "a sweep leaves no folder")

# A killed run goes on, and the folder has the bytes of one that ran through.
weights_file = "model.safetensors"
words = ["--method", "qat", "--format", "q4_0", "--teacher", FOLDER / "tiny", "--lr", "3e-4", "--batch", "4", "--epochs", "2"]
process = subprocess.Popen([sys.executable, "-B", "-m", "qwen_compiler.train", *words_of("killed", *words)], stderr=subprocess.DEVNULL)
state = FOLDER / "killed.training/state.pt"
while not state.exists() and process.poll() is None:
    time.sleep(0.02)
process.send_signal(signal.SIGKILL)
process.wait()
checks.check(state.exists() and not (FOLDER / "killed").exists(), "the run ended before it was killed")
status, said = command("killed", *words)
checks.check(status == 0 and "goes on after" in said, f"killed: {said}")
checks.check((FOLDER / "killed" / weights_file).read_bytes() == (FOLDER / "qat-q4_0" / weights_file).read_bytes(), "a run that was killed ends with other bytes")
checks.check(not state.parent.exists(), "the state is left")

check_refused("argument --method: invalid choice", "--method", "sgd")
check_refused("NAME=VALUE,... is needed", "--method", "qat", "--sweep", "format=q4_0")
check_refused("has other tokens than", "--method", "qat", "--teacher", FOLDER / "other")
check_refused("empty.txt has no tokens", "--method", "qat", data=("text.txt", "empty.txt"))
check_refused("is not JSON", "--method", "qat", data=("broken.jsonl",))
check_refused("record 1 of", "--method", "qat", data=("else.jsonl",))
check_refused("cannot read", "--method", "qat", data=("none.txt",))
check_refused("two windows of 100000 are needed", "--method", "qat", "--window", "100000")
check_refused("has no config.json", "--method", "qat", checkpoint="none")
check_refused("take a smaller --lr than 1e+30", "--method", "qat", "--lr", "1e30")
check_refused("the loss is not finite after", "--method", "lora", "--lr", "1e30")
check_refused("cannot take the weights of", "--method", "lsq", "--start", FOLDER / "text.txt")
check_refused("shortgpt:N or sleb:N", "--method", "qat", "--prune", "all")
check_refused("needs a format with minimums", "--method", "qalora", "--format", "q4_0")
# A file system of 200 KiB: the state fits, the folder does not.
if os.geteuid() == 0:
    small_disk = FOLDER / "disk"
    small_disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", small_disk], capture_output=True).returncode == 0:
        status, said = command("disk/full", "--method", "qat")
        checks.check(status == 1 and said.count("\n") == 1 and "cannot write" in said, f"full disk: {said!r}")
        checks.check(not (small_disk / "full").exists(), "a full disk leaves a folder")
        subprocess.run(["umount", small_disk], check=True)
checks.finish()
