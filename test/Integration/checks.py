"""Functions that the integration tests share: running the two programs, reading goldens, counting differences."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

import gguf
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from formats import kv_formats, weight_formats  # noqa: E402, F401
from make_checkpoint import config, tensors, values  # noqa: E402

# NumPy has no bf16 and no e4m3: their bits.
DTYPES = {"F32": np.float32, "F16": np.float16, "I8": np.int8, "I32": np.int32, "I64": np.int64, "U8": np.uint8, "U32": np.uint32,
          "BF16": np.uint16, "F8_E4M3": np.uint8}


def read_safetensors(path):
    """The tensors of a file by name."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = file.read()
    return {
        name: np.frombuffer(data[slice(*t["data_offsets"])], DTYPES[t["dtype"]]).reshape(t["shape"])
        for name, t in header.items() if name != "__metadata__"
    }


def run(command, **kwargs):
    """Runs a command that must succeed; returns its stdout as text."""
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    if result.returncode != 0:
        sys.exit(f"failed ({result.returncode}): {' '.join(map(str, command))}\n{result.stderr}")
    return result.stdout


def own_lines(stderr):
    """Lines of a program, without AddressSanitizer's warnings about Halide's switching of stacks."""
    return [line for line in stderr.splitlines() if "ASan doesn't fully support makecontext" not in line]


def matches(expected, text):
    """Whether `text` is `expected`, in which {{...}} is a regular expression."""
    parts = re.split(r"\{\{(.*?)\}\}", expected)
    return re.fullmatch("".join(f"(?:{p})" if i % 2 else re.escape(p) for i, p in enumerate(parts)), text)


def compile_model(checkpoint, out, *options):
    """Rounded and not rotated; of a folder, in q4_0. Options may say otherwise."""
    if pathlib.Path(checkpoint).is_dir() and "--weights" not in options:
        options = ("--weights", "q4_0", *options)
    for option, value in (("--quantizer", "rtn"), ("--rotate", "off")):
        if option not in options:
            options = (option, value, *options)
    run(["qwen-opt", checkpoint, "-o", out, *options])
    return out


def write_weights(folder, weights, facts):
    """A checkpoint of `weights` by name, in f32 or as bits of bf16, and of `facts`, its config.json."""
    names = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    header, data = {}, b""
    for name, bits in weights.items():
        header[name] = {"dtype": names[bits.dtype], "shape": bits.shape, "data_offsets": [len(data), len(data) + bits.nbytes]}
        data += bits.tobytes()
    text = json.dumps(header).encode()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (folder / "config.json").write_text(json.dumps(facts))


def write_checkpoint(folder, shape, rng, **more):
    """A checkpoint with random weights; `shape` is as in bench/make_checkpoint.py, `more` is for config.json. Returns both."""
    weights = {name: values(name, dims, rng) for name, dims in tensors(*shape)}
    facts = config(*shape) | {"head_dim": shape[5], "bos_token_id": 0, "eos_token_id": 1} | more
    write_weights(folder, weights, facts)
    return weights, facts


def image_parts(model):
    """The matrices and vectors of a compiled model: the manifest's element of each, and its bytes."""
    data = model.read_bytes()
    header = struct.unpack_from("<8s4I20Q", data, data.index(b"QWENAOT\0"))
    manifest, weights = header[8:10], header[16:18]
    for part in json.loads(data[manifest[0]:sum(manifest)])["tensors"]:
        first = weights[0] + part["offset"]
        yield part, data[first:first + part["bytes"]]


def segments(part, rows):
    """The rows of each tensor in a part of the image, by name."""
    first = 0
    for segment in part["segments"]:
        yield segment["name"], rows[first:first + segment["outputs"]]
        first += segment["outputs"]


def weights_of(model):
    """The tensors in f32 of a compiled model, by name."""
    result = {}
    for part, data in image_parts(model):
        if part["format"] != "f32":
            continue
        image = np.frombuffer(data, "<f4")
        shape = part["shape"]
        if len(shape) == 2:
            image = image.reshape(-1, shape[1], 16).swapaxes(1, 2).reshape(-1, shape[1])
        result |= segments(part, image)
    return result


def q4_0_of(model):
    """The tensors in q4_0 of a compiled model, by name: pairs of scale and 32 integers for each block of each output."""
    block = np.dtype([("scales", "<f2", 16), ("bytes", np.uint8, (4, 16, 4))])
    result = {}
    for part, data in image_parts(model):
        if part["format"] == "q4_0":
            panels = np.frombuffer(data, block).reshape(-1, part["shape"][1] // 32)
            scales = panels["scales"].swapaxes(1, 2).reshape(-1, panels.shape[1])
            halves = panels["bytes"].transpose(0, 3, 1, 2, 4).reshape(*scales.shape, 16)
            codes = np.concatenate([halves & 15, halves >> 4], -1).astype(np.int8) - 8
            result |= {name: (scales[rows], codes[rows]) for name, rows in segments(part, np.arange(len(scales)))}
    return result


def export(model, out):
    """Exports a compiled model. Returns the tensors of the GGUF file, which the gguf package reads."""
    run(["qwen-opt", "export", model, "-o", out])
    return gguf.GGUFReader(out).tensors


def dequantized(tensor):
    """The values of a tensor of the gguf package in f32."""
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type)


def summary_of(stderr):
    """The lines of the summary about forms: "FORM: MATRICES, exact FORMAT" or "FORM: MATRICES, FORMAT with ERROR%"."""
    lines = []
    for line in stderr.splitlines():
        if line.startswith("  from "):
            form, rest = line.removeprefix("  from ").split(": ")
            parts = rest.split(", ")
            what = parts[2].replace("kept exactly in", "exact").removeprefix("converted to ")
            error = f" {parts[4].removeprefix('with an error of ')}" if len(parts) > 4 else ""
            lines.append(f"{form}: {parts[0].removesuffix(' matrices')}, {what}{error}")
    return lines


def join(ids):
    return ",".join(str(i) for i in ids)


def logits(model, ids, out, *options, runner=("qwen-run",)):
    """Logits [T, V] of one sequence."""
    run([*runner, "logits", model, "--ids", join(ids), "-o", out, *options])
    return np.load(out)


def same_bits(found, expected):
    """Whether two arrays of f32 have one shape and the same bits: -0 is not +0."""
    return np.array_equal(found.view(np.uint32), expected.view(np.uint32))


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


class Checks:
    """Collects failures, so that one run reports all of them."""

    def __init__(self):
        self.count = 0
        self.failures = []

    def check(self, condition, message):
        self.count += 1
        if not condition:
            self.failures.append(message)
            print("FAIL:", message)

    def expect(self, name, got, expected):
        self.check(got == expected, f"{name}: {got!r} is not {expected!r}")

    def finish(self):
        print(f"{self.count} checks, {len(self.failures)} failures")
        sys.exit(1 if self.failures or not self.count else 0)


def full():
    """Whether to run the full matrix (make test-full)."""
    return bool(os.environ.get("QWEN_TEST_FULL"))


def affected(label):
    """Whether changes may break tests with a label of changes.py; always so outside of .ci/run."""
    return label not in os.environ.get("QWEN_UNAFFECTED", "").split()
