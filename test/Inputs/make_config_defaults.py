#!/usr/bin/env python3
"""Records the defaults of transformers' configuration classes: test/Inputs/config_defaults.json.

  python3 -m venv v && v/bin/pip install transformers==5.24.0
  v/bin/python test/Inputs/make_config_defaults.py

The record has to_dict() of a configuration without arguments for each architecture that the compiler imports and
transformers has (QWenLMHeadModel brings code of its own). ConfigDefaultsTest compares the importer with it.
"""
import json
import pathlib

import transformers

CONFIGS = {
    "Qwen2ForCausalLM": "Qwen2Config",
    "Qwen3ForCausalLM": "Qwen3Config",
    "Qwen3_5ForCausalLM": "Qwen3_5TextConfig",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5Config",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2_5_VLConfig",
    "Qwen3VLForConditionalGeneration": "Qwen3VLConfig",
    "Qwen2MoeForCausalLM": "Qwen2MoeConfig",
    "Qwen3MoeForCausalLM": "Qwen3MoeConfig",
    "Qwen3VLMoeForConditionalGeneration": "Qwen3VLMoeConfig",
    "Qwen3_5MoeForCausalLM": "Qwen3_5MoeTextConfig",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5MoeConfig",
    "Qwen3NextForCausalLM": "Qwen3NextConfig",
}


def main():
    record = {architecture: {"class": name, "config": getattr(transformers, name)().to_dict()}
              for architecture, name in CONFIGS.items()}
    lines = [f"{json.dumps(architecture)}: {json.dumps(entry, sort_keys=True)}" for architecture, entry in record.items()]
    path = pathlib.Path(__file__).parent / "config_defaults.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
