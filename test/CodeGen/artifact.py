"""Reads an artifact as docs/artifact.md says and compares its weights with the
checkpoint: artifact.py FILE DIR. Shares no code with the compiler."""

import json
import pathlib
import struct
import sys

import numpy as np


def tensors_of(folder):
    """All tensors of a checkpoint as f32."""
    result = {}
    for path in sorted(folder.glob("model*.safetensors")):
        data = path.read_bytes()
        (size,) = struct.unpack_from("<Q", data)
        for name, entry in json.loads(data[8 : 8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + size + at for at in entry["data_offsets"])
            raw = data[begin:end]
            if entry["dtype"] == "BF16":
                bits = np.frombuffer(raw, "<u2").astype(np.uint32) << 16
                values = bits.view(np.float32)
            else:
                types = {"F32": "<f4", "F16": "<f2"}
                values = np.frombuffer(raw, types[entry["dtype"]])
            result[name] = values.astype(np.float32).reshape(entry["shape"])
    return result


def quantize_range(values):
    """Scales and minimums (f16 [2][blocks]) and stored integers of blocks, by the rule for q4_m_32."""
    least = values.min(axis=1)
    d = (values.max(axis=1) - least) / np.float32(15)
    with np.errstate(divide="ignore"):
        scaled = (values - least[:, None]) * np.where(d == 0, np.float32(0), np.float32(1) / d)[:, None]
    return np.stack([d, least]).astype(np.float16), np.minimum(np.trunc(scaled + np.float32(0.5)), 15).astype(np.uint8)


def quantize(values, bits):
    """Scales (f16 [1][blocks]) and stored integers of blocks, by the rules for q4_0 and q8_0."""
    first = np.abs(values).argmax(axis=1)[:, None]
    largest = np.take_along_axis(values, first, 1)
    d = largest / np.float32(-8) if bits == 4 else np.abs(largest) / np.float32(127)
    with np.errstate(divide="ignore"):
        scaled = values * np.where(d == 0, np.float32(0), np.float32(1) / d)
    if bits == 4:
        q = np.clip(np.trunc(scaled + np.float32(8.5)), 0, 15).astype(np.uint8)
    else:
        size = np.abs(scaled)
        size = np.floor(size) + np.floor(2 * (size - np.floor(size)))
        q = (np.sign(scaled) * size).astype(np.int8).view(np.uint8)
    return d.T.astype(np.float16), q


def to_bf16(values):
    """The upper halves of f32, rounded to nearest even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def check_floats(image, rows, encode, stored):
    panels = -(-rows.shape[0] // 16)
    padded = np.zeros((panels * 16, rows.shape[1]), np.float32)
    padded[: rows.shape[0]] = rows
    found = np.frombuffer(image, stored).reshape(panels, rows.shape[1], 16)
    assert np.array_equal(found, encode(padded).reshape(panels, 16, -1).swapaxes(1, 2))


def check_quantized(image, rows, bits, block, encode):
    """Panels of blocks: 16 scales, and 16 minimums where encode() gives them, then groups of 32 values in chunks of 4 bytes of
    each output."""
    n, k = rows.shape
    header = 32 * len(encode(np.zeros((1, block), np.float32))[0])
    padded = np.zeros((-(-n // 16) * 16, k), np.float32)
    padded[:n] = rows
    at = 0
    for panel in range(0, len(padded), 16):
        for begin in range(0, k, block):
            count = min(block, k - begin)
            size = header + count * 16 * bits // 8
            part = np.frombuffer(image, np.uint8, size, at)
            at += size
            q = part[header:].reshape(count // 32, -1, 16, 4)  # [group][chunk][row][byte]
            q = q.transpose(2, 0, 1, 3).reshape(16, count // 32, -1)
            if bits == 4:
                q = np.concatenate([q & 15, q >> 4], axis=2)
            d, expected = encode(padded[panel : panel + 16, begin : begin + count])
            real = max(0, min(16, n - panel))
            scales = np.ascontiguousarray(part[:header]).view(np.uint16).reshape(-1, 16)
            assert np.array_equal(scales[:, :real], np.ascontiguousarray(d).view(np.uint16)[:, :real])
            assert np.array_equal(q.reshape(16, count)[:real], expected[:real])
            assert not scales[:, real:].any()
    assert at == len(image)


def main():
    data = pathlib.Path(sys.argv[1]).read_bytes()
    checkpoint = tensors_of(pathlib.Path(sys.argv[2]))
    at = data.index(b"QWENAOT\0")
    header = struct.unpack_from("<8s4I20Q", data, at)
    assert header[1:4] == (6, 11, 336) and header[5] == len(data)
    code, manifest, tokenizer, template, checksums, weights = (
        header[i : i + 2] for i in range(6, 18, 2)
    )
    assert data[:4] == b"\x7fELF" and code[0] == 0
    assert weights[0] % (64 << 10) == 0 and sum(weights) == len(data)
    assert checksums[1] == -(-weights[1] // (1 << 20)) * 8

    facts = json.loads(data[manifest[0] : sum(manifest)])
    shape, [cache] = facts["programs"][0]["model"], facts["programs"][0]["caches"]
    of_head = {"f16": 2 * shape["head_dim"], "f32": 4 * shape["head_dim"], "q8": shape["head_dim"] + 4}[cache["format"]]
    assert cache == {"name": "kv", "kind": "paged", "format": cache["format"], "layers": list(range(shape["layers"])),
                     "layer_bytes": 2 * shape["kv_heads"] * of_head}
    seen = set()
    end = 0
    for tensor in sorted(facts["tensors"], key=lambda t: t["offset"]):
        assert tensor["offset"] % 64 == 0 and tensor["offset"] >= end
        begin = weights[0] + tensor["offset"]
        end = tensor["offset"] + tensor["bytes"]
        image = data[begin : begin + tensor["bytes"]]
        names = [segment["name"] for segment in tensor["segments"]]
        if names == ["rope.frequencies"]:
            d = shape["head_dim"]
            exponents = np.arange(0, d, 2, dtype=np.float32) / np.float32(d)
            power = shape["rope_theta"] ** exponents.astype(np.float64)
            expected = np.float32(1) / power.astype(np.float32)
            found = np.frombuffer(image, "<f4")
            assert np.array_equal(found[: expected.size], expected)
            assert found.size % 16 == 0 and not found[expected.size :].any()
            continue
        seen.update(names)
        rows = np.concatenate([checkpoint[name] for name in names])
        assert list(rows.shape) == tensor["shape"]
        if rows.ndim == 1:
            found = np.frombuffer(image, "<f4")
            assert np.array_equal(found[: rows.size], rows)
            assert found.size % 16 == 0 and not found[rows.size :].any()
        elif tensor["format"] == "f32":
            check_floats(image, rows, lambda values: values, "<f4")
        elif tensor["format"] == "bf16":
            check_floats(image, rows, to_bf16, "<u2")
        else:
            four, eight = (lambda values: quantize(values, 4)), (lambda values: quantize(values, 8))
            formats = {"q4_0": (4, 32, four), "q8_0": (8, 32, eight), "q4_g128": (4, 128, four), "q4_m_32": (4, 32, quantize_range)}
            check_quantized(image, rows, *formats[tensor["format"]])
    assert seen == set(checkpoint), set(checkpoint) - seen
    print(f"{len(seen)} tensors, {weights[1]} bytes")


main()
