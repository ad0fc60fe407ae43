#!/usr/bin/env python3
"""Records what transformers computes of checkpoints whose config.json leaves keys out: NAME.safetensors for each case of cases.json.

  python3 -m venv v && v/bin/pip install torch transformers==5.24.0
  v/bin/python test/Inputs/left_out/make_left_out.py

A case is a checkpoint of test/Inputs/checkpoints, the keys that its config.json lacks, and others in their place (`edited_config` of
test/Integration/left_out.py). A file has prompt i64 [T] and logits f32 [T, V] in f32.
"""
import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

INPUTS = pathlib.Path(__file__).parent
sys.path.append(str(INPUTS.parent.parent / "Integration"))
from left_out import make_checkpoint  # noqa: E402

TOKENS = 24


def main():
    for name, case in json.loads((INPUTS / "cases.json").read_text()).items():
        source = INPUTS.parent / "checkpoints" / case["checkpoint"]
        golden = load_file(source / "golden.safetensors")
        prompt = next(value for key, value in sorted(golden.items()) if key.endswith("prompt"))[:TOKENS].clone()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = make_checkpoint(source, case, pathlib.Path(folder) / name)
            config = json.loads((checkpoint / "config.json").read_text())
            model = getattr(transformers, config["architectures"][0]).from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            logits = model(input_ids=prompt[None]).logits[0]
        save_file({"prompt": prompt, "logits": logits.contiguous()}, INPUTS / f"{name}.safetensors")
        print(name, tuple(logits.shape))


if __name__ == "__main__":
    main()
