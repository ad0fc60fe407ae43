"""Models with the tokens of Qwen's vocabularies that stand for marks."""
import json
import shutil

import numpy as np

from checks import compile_model, write_checkpoint

# Tokens that the vocabulary of the stories lacks.
TOKENS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")


def qwen2_model(vocabulary, work, template, length=2048):
    """A compiled model of random weights with the vocabulary of a folder, which is Qwen2's, TOKENS behind its own, and the chat template of a file."""
    folder = work / f"qwen2-{template.stem}"
    write_checkpoint(folder, ("qwen2", 32, 1, 1, 1, 32, 32, 151936, True), np.random.default_rng(1), max_position_embeddings=length, eos_token_id=151645)
    for file in ("vocab.json", "merges.txt"):
        shutil.copy(vocabulary / file, folder)
    config = json.loads((vocabulary / "tokenizer_config.json").read_text())
    added = config["added_tokens_decoder"]
    for number, text in enumerate(TOKENS, max(map(int, added)) + 1):
        added[str(number)] = {**added["151645"], "content": text, "special": False}
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template.read_text()}))
    return compile_model(folder, work / f"{folder.name}.qwen")


def marked_model(stories, work, template=None):
    """A compiled model with TOKENS in place of the last ones of the vocabulary, and with the chat template of a file, if there is one."""
    folder = work / f"tokens-{template.stem if template else 'plain'}"
    shutil.copytree(stories, folder, ignore=shutil.ignore_patterns("golden"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    first = min(token["id"] for token in tokenizer["added_tokens"]) - len(TOKENS)
    tokenizer["model"]["vocab"] = {text: i for text, i in tokenizer["model"]["vocab"].items() if i < first}
    del tokenizer["model"]["merges"][-len(TOKENS):]
    tokenizer["added_tokens"] += [{**tokenizer["added_tokens"][0], "id": first + i, "content": text, "special": False}
                                  for i, text in enumerate(TOKENS)]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    if template:
        shutil.copy(template, folder / "chat_template.jinja")
    return compile_model(folder, work / f"{folder.name}.qwen")
