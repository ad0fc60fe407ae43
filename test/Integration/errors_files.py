"""What the rows of the tables of errors share: their types, and the files that their commands need.

A function below that a row names as its `files` makes `bad` or `bad.qwen` in the current folder. The folder has links to
all checkpoints, GGUF files and adapters of test/Inputs by their names, to `stories` and to `stories.qwen`; FIXTURES are made there once.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
from typing import Callable, NamedTuple

from checks import run


class NotTried(Exception):
    """This machine cannot make the files of a row; the text says why."""


class Row(NamedTuple):
    """An error of a command. All of its standard error is `message`, it prints nothing else, and it leaves no file."""
    name: str
    files: Callable | None  # Makes what the command reads; may return a function that cleans up.
    command: str
    status: int
    message: str  # {{...}} is a regular expression, as in FileCheck, for what depends on the machine.


class Request(NamedTuple):
    """An error of the server. The answer has no fields but these and the type, which follows from the status."""
    name: str
    request: str  # Method and path.
    body: object  # JSON, or bytes as they are.
    status: int
    param: str | None
    code: str | None
    message: str
    more: dict = {}  # More fields of the error.
    headers: dict = {}
    options: tuple = ()  # Of the server; rows with the same options share one.


QWEN2, QWEN3, HYBRID, MOE = "qwen2-tied-f32", "qwen3-tied-bf16", "qwen3_5-text-f32", "qwen3-moe-f32"
ABSENT = object()
BAD = pathlib.Path("bad")


def copy(source):
    shutil.copytree(source, BAD, ignore=shutil.ignore_patterns("golden*"))


def update(values, changes):
    values.update(changes)
    for key in [key for key, value in values.items() if value is ABSENT]:
        del values[key]


def edited(source=QWEN2, file="config.json", **changes):
    """A checkpoint with other values, or ABSENT ones, in a JSON file."""
    def make():
        copy(source)
        values = json.loads((BAD / file).read_text())
        update(values, changes)
        (BAD / file).write_text(json.dumps(values))
    return make


def added(source=QWEN2, **files):
    """A checkpoint with more or other files, by their names, also with _ for the dot before the ending. ABSENT removes one."""
    def make():
        copy(source)
        for name, content in files.items():
            path = BAD / (name if "." in name else ".".join(name.rsplit("_", 1)))
            path.parent.mkdir(exist_ok=True)
            if content is ABSENT:
                path.unlink()
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
    return make


def linked(name, target, source=QWEN2):
    """A checkpoint with a symbolic link in the place of a file."""
    def make():
        copy(source)
        (BAD / name).unlink(missing_ok=True)
        (BAD / name).symlink_to(target)
    return make


def written(name, content):
    """A file of its own."""
    def make():
        pathlib.Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
        return pathlib.Path(name).unlink
    return make


def read_header(data):
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8:8 + size]), data[8 + size:]


def tensor(name, source=QWEN2, **changes):
    """A checkpoint with another entry of a tensor in the header of model.safetensors. A function changes the value that is there."""
    def make():
        copy(source)
        header, data = read_header((BAD / "model.safetensors").read_bytes())
        entry = header[name]
        update(entry, {key: value(entry[key]) if callable(value) else value for key, value in changes.items()})
        write_header(header, data)
    return make


def renamed(name, new, source=QWEN2):
    """A checkpoint with another name for a tensor."""
    def make():
        copy(source)
        header, data = read_header((BAD / "model.safetensors").read_bytes())
        header[new] = header.pop(name)
        write_header(header, data)
    return make


def unfit():
    """A checkpoint without an lm_head, whose pooling is not the last token."""
    copy("qwen3-untied-f32")
    header, data = read_header((BAD / "model.safetensors").read_bytes())
    begin, end = header.pop("lm_head.weight")["data_offsets"]
    for name, entry in header.items():
        if name != "__metadata__" and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [at - (end - begin) for at in entry["data_offsets"]]
    write_header(header, data[:begin] + data[end:])
    (BAD / "1_Pooling").mkdir()
    (BAD / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')


def write_header(header, data):
    text = json.dumps(header).encode()
    (BAD / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


def number(name, index, value, source=QWEN2):
    """A checkpoint with another number in a tensor of f32."""
    def make():
        copy(source)
        path = BAD / "model.safetensors"
        data = bytearray(path.read_bytes())
        entry = read_header(data)[0][name]
        assert entry["dtype"] == "F32"
        struct.pack_into("<f", data, 8 + int.from_bytes(data[:8], "little") + entry["data_offsets"][0] + 4 * index, value)
        path.write_bytes(data)
    return make


def quantized(key, source=QWEN2):
    """A checkpoint with a tensor of integers, and a key of config.json that says so."""
    def make():
        tensor("model.norm.weight", source, dtype="I32")()
        values = json.loads((BAD / "config.json").read_text())
        (BAD / "config.json").write_text(json.dumps(values | {key: {"quant_method": "hqq"}}))
    return make


def content(change, source=QWEN2):
    """A checkpoint whose model.safetensors is changed as bytes."""
    def make():
        copy(source)
        path = BAD / "model.safetensors"
        path.write_bytes(change(path.read_bytes()))
    return make


def split_gguf():
    """The three files of a model, which a row may try to write."""
    copy("qwen3-split")
    for path in BAD.iterdir():
        path.chmod(0o644)


def unreadable():
    if os.geteuid() == 0:
        raise NotTried("root reads every file")
    copy(QWEN2)
    (BAD / "config.json").chmod(0)


def full_disk():
    out = pathlib.Path("out")
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", out], capture_output=True).returncode:
        raise NotTried("mounting a tmpfs needs root")
    return lambda: subprocess.run(["umount", out], check=True)


# ArtifactHeader (include/qwen/ABI/ArtifactFormat.h): offsets of its fields.
MAGIC = b"QWENAOT\0"
VERSION = 8
SECTIONS = dict(code=32, manifest=48, tokenizer=64, chatTemplate=80, weightChecksums=96, weights=112)
HEADER = 144 + 56


def artifact(change):
    """bad.qwen from the bytes of good.qwen, the place of its header there, and the offset and size of each section."""
    def make():
        good = fixture("good.qwen").read_bytes()
        header = good.index(MAGIC)
        sections = {name: struct.unpack_from("<QQ", good, header + at) for name, at in SECTIONS.items()}
        pathlib.Path("bad.qwen").write_bytes(change(good, header, sections))
    return make


def patched(data, at, value):
    return data[:at] + value + data[at + len(value):]


def flipped(data, at, mask):
    return patched(data, at, bytes([data[at] ^ mask]))


def compiled(source, *options):
    """Compiles a checkpoint, or what a function makes in `bad`; in q4_0 if no option names a format."""
    if "--weights" not in options:
        options = ("--weights", "q4_0", *options)

    def make(out):
        if callable(source):
            source()
        run(["qwen-opt", BAD if callable(source) else source, "-o", out, *options])
        shutil.rmtree(BAD, ignore_errors=True)
    return make


# Models that commands name.
FIXTURES = {
    "good.qwen": compiled(QWEN3),
    "unfit.qwen": compiled(unfit),
    # What cannot be exported.
    "hybrid.qwen": compiled(HYBRID),
    "rotated.qwen": compiled(QWEN3, "--rotate", "on"),
    "k96.qwen": compiled(QWEN3, "--weights", "q6_k"),
    "zeros.qwen": compiled(QWEN3, "--weights", "q4_z_32"),
    "short.qwen": compiled("stories", "--context", "4"),
    "arm.qwen": compiled(QWEN3, "--target", "armv8.2-a+dotprod"),
    "arms.qwen": compiled(QWEN3, "--target", "neoverse-n1,neoverse-v1"),
    "v3.qwen": compiled(QWEN3, "--target", "x86-64-v3"),
    # Numbers that are finite until the model runs.
    "append.qwen": compiled(number("model.layers.1.self_attn.k_proj.bias", 5, 1e5), "--kv", "f16"),
    "norm.qwen": compiled(number("model.norm.weight", 5, 3e38), "--weights", "f32"),
    "quantize.qwen": compiled(number("model.layers.0.input_layernorm.weight", 5, 3.4e38)),
    "squares.qwen": compiled(number("model.layers.0.self_attn.v_proj.bias", 5, 1e21), "--kv", "f32"),
    "squares-f32.qwen": compiled(number("model.layers.0.self_attn.v_proj.bias", 5, 1e21), "--weights", "f32"),
}


def fixture(name):
    """The path of a model of FIXTURES, which is compiled at its first use."""
    path = pathlib.Path(name)
    if not path.exists():
        FIXTURES[name](path)
    return path
