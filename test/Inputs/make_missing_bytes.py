#!/usr/bin/env python3
"""Makes small tokenizers without tokens for some bytes, and what Hugging Face tokenizers does with them.

  python3 -m venv v && v/bin/pip install tokenizers
  v/bin/python test/Inputs/make_missing_bytes.py > test/Inputs/tokenizer/missing_bytes.jsonl

A line has the model of a tokenizer.json (`model`) and texts (`cases`: text, ids, decoded). The tokenizers differ in their bytes, merges and
unknown token: none, one that each missing byte becomes, one that missing bytes in a row become, a word that is in texts, too.
"""
import json
import random

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CHARACTERS = "aabbccdd  \n.1é你😀"
UNKNOWN = "<unk>"
# The unknown token, and whether missing bytes in a row become one.
KINDS = (None, False), (UNKNOWN, False), (UNKNOWN, True), ("a", False), ("a", True)


def byte_level(text):
    """The bytes of `text` in the byte-level alphabet."""
    return [c for word, _ in ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text) for c in word]


def make_tokenizer(draw, unknown, joins):
    used = sorted(set(byte_level("".join(CHARACTERS))))
    words = [c for c in used if c == "a" or draw.random() < 0.6]
    if unknown == UNKNOWN:
        words.append(unknown)
    merges = []
    for _ in range(12):
        # Most merges are of letters, so that texts have many.
        pair = draw.choices(words, [12 if set(word) <= set("abcd" + UNKNOWN) else 1 for word in words], k=2)
        if "".join(pair) not in words:
            merges.append(pair)
            words.append("".join(pair))
    draw.shuffle(words)
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": unknown, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": joins, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {word: i for i, word in enumerate(words)}, "merges": merges}}


def main():
    draw = random.Random(34)
    for unknown, joins in KINDS * 4:
        spec = make_tokenizer(draw, unknown, joins)
        tokenizer = Tokenizer.from_str(json.dumps(spec))
        cases = []
        for size in (0, 1, 1, *range(2, 32, 2)):
            text = "".join(draw.choices(CHARACTERS, k=size))
            ids = tokenizer.encode(text).ids
            cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
        print(json.dumps({"model": spec["model"], "cases": cases}, ensure_ascii=False))


if __name__ == "__main__":
    main()
