"""The compiler on an Arm machine, emulated by qemu-user: its files have the bytes of this machine's, and what people do with it works.

  arm_host.py ROOT WORKDIR [PART...]      ROOT is the project, with its builds host, aarch64-compiler and
                                          aarch64; a PART is a key of PARTS or of FILES
"""
import functools
import http.client
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import time

import numpy as np

from checks import Checks, run, write_checkpoint
from server import Server

ROOT, WORK = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
STORIES, INPUTS = ROOT / "models/stories", ROOT / "test/Inputs"
HOST, ARM, STATIC = (ROOT / "build" / preset / "bin" for preset in ("host", "aarch64-compiler", "aarch64"))
# Two layers with the tokenizer of stories, which calibrate in seconds also on an emulator, and 4096 tokens of text.
SMALL, TEXT = WORK / "small", WORK / "text"
# What Linux reads to run programs of AArch64 by an emulator, in a user namespace of this test's own.
EMULATOR = r":aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:" \
    r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:F"
# A CPU of qemu without SVE, which emulators are slow with.
PLAIN = "neoverse-n1"
checks = Checks()


def emulate():
    """Starts this program again where Linux runs programs of AArch64."""
    mount = 'mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && printf %s "$0" >/proc/sys/fs/binfmt_misc/register && exec "$@"'
    os.execvp("unshare", ["unshare", "-rm", "sh", "-c", mount, EMULATOR, sys.executable, *sys.argv])


def on(machine=PLAIN, **environment):
    """The environment of a command. Code is compiled anew, and `machine` is a CPU of qemu."""
    return {**os.environ, "QEMU_CPU": machine, "QWEN_CODE_CACHE": "", **environment}


def arm(program, *arguments, machine=PLAIN, **environment):
    """What a program for AArch64 prints."""
    return run([ARM / program, *arguments], env=on(machine, **environment), cwd=WORK)


#----------------------------------------------------------------------------------------
# The same file from every host
#----------------------------------------------------------------------------------------

# A file of several targets has the code of each.
SEVERAL, N1, V1, X86 = "cortex-a72,neoverse-n1,neoverse-v1", "neoverse-n1", "neoverse-v1", "x86-64-v3"
CALIBRATED = (f"--calibrate={TEXT}", "--weights", "q4_0")
# Models and options, and the targets that each is compiled for: about 20 s for each target on an emulator.
FILES = {
    "folder": ((SEVERAL, X86), STORIES, "--weights", "q4_0"),
    "GGUF": ((SEVERAL, X86), INPUTS / "gguf/qwen3-q4_k_m/model.gguf"),
    "calibrated": ((SEVERAL,), SMALL, *CALIBRATED),
    "search": ((V1,), STORIES, "--weights", "q4_k", "--quantizer", "search"),
    "awq and descent": ((N1,), SMALL, *CALIBRATED, "--awq", "--rotate", "off", "--quantizer", "gptq+cd"),
    "pruned": ((X86,), SMALL, *CALIBRATED, "--prune", "shortgpt:1"),
    "hybrid": ((V1,), INPUTS / "checkpoints/qwen3_5-bf16", "--weights", "q6_k"),
    "experts": ((N1,), INPUTS / "checkpoints/qwen3-moe-bf16", "--weights", "q8_0", "--rotate", "on"),
    # The file says the factor of cos and sin, which is a logarithm.
    "longer context": ((X86,), INPUTS / "checkpoints/qwen3-untied-f32", "--weights", "f32", "--rope-scaling", "yarn:48:32"),
    "float8": ((N1,), INPUTS / "checkpoints/fp8-qwen3-block128"),
}


def compile_on(name, machine, model, options):
    out = WORK / f"{name}.qwen"
    program = (HOST if machine == "this machine" else ARM) / "qwen-opt"
    start = time.monotonic()
    run([program, model, "-o", out, *options], env=on())
    return out.read_bytes(), time.monotonic() - start


def check_same(what, model, *options):
    (here, seconds), (there, emulated) = (compile_on(name, name, model, options) for name in ("this machine", "AArch64"))
    checks.check(here == there, f"{what}: an AArch64 machine makes another file")
    same = "equal" if here == there else "differs"
    print(f"{what:60}{len(here):>10} bytes  {same:8}{seconds:6.1f} s here, {emulated:6.1f} s emulated", flush=True)


def check_file(name):
    targets, model, *options = FILES[name]
    for target in targets:
        check_same(f"{name}, {target}", model, *options, "--target", target)


def check_files():
    for name in FILES:
        check_file(name)


#----------------------------------------------------------------------------------------
# The machine itself
#----------------------------------------------------------------------------------------

# What qwen-opt calls a machine of qemu, and the features of its code. LLVM knows all but the last; qemu 8.1 and later have neoverse-v1.
MACHINES = {
    "cortex-a72": ("cortex-a72", ["neon"]),
    "cortex-a76": ("cortex-a76", ["neon", "dotprod"]),
    "neoverse-n1": ("neoverse-n1", ["neon", "dotprod"]),
    "a64fx": ("a64fx", ["neon", "sve"]),
    "neoverse-v1": ("neoverse-v1", ["neon", "dotprod", "i8mm", "sve"]),
    "max": ("armv8.2-a+dotprod+i8mm+sve", ["neon", "dotprod", "i8mm", "sve"]),
}


def check_machines():
    # qemu lists its machines and fails.
    answers, known = set(), subprocess.run(["qemu-aarch64-static", "-cpu", "help"], stdout=subprocess.PIPE, text=True).stdout.split()
    for machine, (name, features) in MACHINES.items():
        if machine not in known:
            print(f"qemu lacks {machine}")
            continue
        model = WORK / f"{machine}.qwen"
        arm("qwen-opt", SMALL, "-o", model, "--weights", "q4_0", "--verify", machine=machine)
        target = json.loads(arm("qwen-run", "info", model, "--json", machine=machine))["targets"][0]
        checks.expect(f"the target of {machine}", target["name"], name)
        checks.check(set(target["features"]) <= set(features), f"{machine}: its code needs {target['features']}, which is more than {features}")
        answers.add(arm("qwen-run", "generate", model, "-p", "Once upon a time", "-n", "16", "--temperature", "0", machine=machine))
    checks.expect("the number of answers", len(answers), 1)


#----------------------------------------------------------------------------------------
# What people do
#----------------------------------------------------------------------------------------

def check_use():
    cache = {"XDG_CACHE_HOME": str(WORK / "cache"), "QWEN_CODE_CACHE": ""}
    text = arm("qwen-run", "generate", STORIES, "-p", "Once upon a time", "-n", "16", "--temperature", "0", **cache)
    checks.check(len(text.split()) > 8, f"qwen-run MODEL answers {text!r}")
    doctor = arm("qwen-run", "doctor", **cache)
    checks.check("aarch64" in doctor, f"doctor says {doctor!r}")
    # Two measurements of an emulator's memory would take a minute each.
    info = arm("qwen-opt", "info", STORIES, "--gbps", "10")
    checks.check("q4_0" in info, f"info says {info!r}")
    model = WORK / "small.qwen"
    arm("qwen-opt", SMALL, "-o", model, "--weights", "q4_0")
    arm("qwen-opt", "export", model, "-o", WORK / "arm.gguf")
    run([HOST / "qwen-opt", "export", model, "-o", WORK / "here.gguf"])
    checks.check((WORK / "arm.gguf").read_bytes() == (WORK / "here.gguf").read_bytes(), "export makes another file")


def check_server():
    """The static qwen-run answers by a grammar and over TLS."""
    model, keys = WORK / "served.qwen", INPUTS / "tls"
    run([HOST / "qwen-opt", STORIES, "-o", model, "--weights", "q4_0", "--target", "neoverse-n1"], env=on())
    tls = ("--tls-cert", keys / "cert.pem", "--tls-key", keys / "key.pem")
    program = [STATIC / "qwen-run", "serve", model, "--listen", "127.0.0.1:0", "--no-auth", *tls]
    server = Server(model, program=program, env=on())
    trusted = ssl.create_default_context(cafile=keys / "cert.pem")
    trusted.check_hostname = False
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=300, context=trusted)
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["age"], "additionalProperties": False}
    body = {"messages": [{"role": "user", "content": "How old is she?"}], "max_tokens": 40,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    server.stop()
    checks.check(response.status == 200, f"the answer is {response.status} {text}")
    if response.status == 200:
        answer = json.loads(text)["choices"][0]["message"]["content"]
        checks.check(0 <= json.loads(answer)["age"] <= 99, f"an answer by a schema is {answer!r}")


PARTS = {"files": check_files, "machines": check_machines, "use": check_use, "server": check_server}
ROWS = {name: functools.partial(check_file, name) for name in FILES}


def write_inputs():
    WORK.mkdir(parents=True, exist_ok=True)
    TEXT.write_bytes((STORIES / "golden/val.txt").read_bytes()[:17500])
    facts = json.loads((STORIES / "config.json").read_text())
    shape = ("qwen3", 64, 2, 2, 1, 32, 128, facts["vocab_size"], True)
    write_checkpoint(SMALL, shape, np.random.default_rng(1), **{key: facts[key] for key in ("bos_token_id", "eos_token_id", "max_position_embeddings")})
    for file in STORIES.glob("*token*.json"):
        shutil.copy(file, SMALL)


if __name__ == "__main__":
    if not pathlib.Path("/proc/sys/fs/binfmt_misc/aarch64").exists():
        emulate()
    write_inputs()
    for part in sys.argv[3:] or PARTS:
        start = time.monotonic()
        (PARTS | ROWS)[part]()
        print(f"{part}: {time.monotonic() - start:.0f} s", flush=True)
    checks.finish()
