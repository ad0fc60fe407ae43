"""The formats of weights, for the scripts of bench and test."""
import pathlib
import re

TABLE = pathlib.Path(__file__).resolve().parents[1] / "include/qwen/ABI/WeightFormats.def"


def weight_formats(quantized=None):
    """Names of WeightFormats.def in its order: all, the quantized ones (True), or those of floats (False)."""
    text = TABLE.read_text()
    floats = {coding: is_float == "true"
              for coding, is_float in re.findall(r"^QWEN_CODING\((\w+), \d+, (\w+),", text, re.M)}
    rows = re.findall(r"^QWEN_WEIGHT_FORMAT\(\w+, (\w+), (\w+),", text, re.M)
    return [name for name, coding in rows if quantized in (None, not floats[coding])]
