"""What qwen-opt export makes of a compiled GGUF file."""
import gguf
import numpy as np

from checks import compile_model, dequantized, export


def check_exported(checks, work, file, model, again=None):
    """An exported file has the bytes of `file`, where a format keeps them, and else its values; compiled, it is `again`, if that is
    given."""
    types = gguf.GGMLQuantizationType
    exported = work / "exported" / file.name
    exported.parent.mkdir(exist_ok=True)
    tensors, known = {tensor.name: tensor for tensor in export(model, exported)}, 0
    for tensor in gguf.GGUFReader(file).tensors:
        found, kind = tensors[tensor.name], tensor.tensor_type
        if kind == types.Q2_K:
            continue  # Its values are encoded.
        same = np.array_equal(found.data, tensor.data) if found.tensor_type == kind else kind in (types.F16, types.Q3_K, types.MXFP4) and \
            np.array_equal(dequantized(found), dequantized(tensor))
        checks.check(same, f"{file.name}: {tensor.name} in {kind.name} becomes another tensor in {found.tensor_type.name}")
        known += 1
    checks.check(known > 0 and len(tensors) == len(gguf.GGUFReader(file).tensors), f"{file.name}: tensors are missing")
    if again:
        found = compile_model(exported, work / "again.qwen")
        checks.check(found.read_bytes() == again.read_bytes(), f"{file.name}: the exported file gives another model")
