"""The stories with the tokens of Qwen's vocabularies that stand for marks."""
import json
import shutil

from checks import compile_model

# Tokens that the vocabulary of the stories lacks.
TOKENS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")


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
