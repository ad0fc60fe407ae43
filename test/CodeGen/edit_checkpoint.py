"""Copies a checkpoint of f32 weights with one value changed:
edit_checkpoint.py FROM TO TENSOR INDEX VALUE."""

import json
import pathlib
import shutil
import struct
import sys

source, target, tensor, index, value = sys.argv[1:]
shutil.copytree(source, target, dirs_exist_ok=True)
path = pathlib.Path(target) / "model.safetensors"
path.chmod(0o644)
data = bytearray(path.read_bytes())
(size,) = struct.unpack_from("<Q", data)
entry = json.loads(data[8 : 8 + size])[tensor]
assert entry["dtype"] == "F32"
at = 8 + size + entry["data_offsets"][0] + 4 * int(index)
struct.pack_into("<f", data, at, float(value))
path.write_bytes(data)
