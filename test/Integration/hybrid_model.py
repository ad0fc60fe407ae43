"""A small hybrid (Qwen3.5) of random weights, whose answers do not end by themselves."""
import shutil

import numpy as np

from checks import compile_model, write_checkpoint

SHAPE = ("qwen3_5", 64, 4, 2, 1, 32, 96, 4096, True, (1, 32, 2, 32))


def compile_hybrid(tokenizer, templates, workdir):
    """Compiles it in `workdir`, with the tokenizer of a folder and the chat template of Qwen3.5-4B."""
    checkpoint = workdir / "checkpoint"
    write_checkpoint(checkpoint, SHAPE, np.random.default_rng(3), max_position_embeddings=1024, bos_token_id=4093, eos_token_id=4095)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, checkpoint)
    shutil.copy(templates / "Qwen3.5-4B.jinja", checkpoint / "chat_template.jinja")
    return compile_model(checkpoint, workdir / "hybrid.qwen")
