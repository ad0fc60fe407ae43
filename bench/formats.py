"""The formats of weights and of the KV cache, for the scripts of bench and test."""
import pathlib
import re

ABI = pathlib.Path(__file__).resolve().parents[1] / "include/qwen/ABI"


def weight_formats(quantized=None):
    """Names of WeightFormats.def in its order: all, the quantized ones (True), or those of floats (False)."""
    text = (ABI / "WeightFormats.def").read_text()
    floats = {coding: is_float == "true"
              for coding, is_float in re.findall(r"^QWEN_CODING\((\w+), \d+, (\w+),", text, re.M)}
    rows = re.findall(r"^QWEN_WEIGHT_FORMAT\(\w+, (\w+), (\w+),", text, re.M)
    return [name for name, coding in rows if quantized in (None, not floats[coding])]


def kv_formats():
    """Names of KvFormats.def, sorted."""
    return sorted(re.findall(r"^QWEN_(?:KV|CACHE)_FORMAT\(\w+, (\w+),", (ABI / "KvFormats.def").read_text(), re.M))
