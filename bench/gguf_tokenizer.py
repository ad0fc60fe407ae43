"""The tokenizer of a checkpoint folder in a GGUF file, for the scripts of the peers, which run in environments of their own."""
import json


def read_vocabulary(folder):
    """Numbers of the tokens by their text, those of added tokens, and the merges as texts."""
    file = folder / "tokenizer.json"
    if file.exists():
        content = json.loads(file.read_text())
        model = content["model"]
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        return model["vocab"], {token["content"]: token["id"] for token in content["added_tokens"]}, merges
    vocabulary = json.loads((folder / "vocab.json").read_text())
    merges = [line for line in (folder / "merges.txt").read_text().splitlines() if line and not line.startswith("#version")]
    added = folder / "added_tokens.json"
    if added.exists():
        return vocabulary, json.loads(added.read_text()), merges
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    return vocabulary, {token["content"]: int(number) for number, token in settings.get("added_tokens_decoder", {}).items()}, merges


def add_tokenizer(writer, folder, config):
    """Writes it by `writer`, a gguf.GGUFWriter. Rows of the embedding that no token has get a name of their own."""
    import gguf
    vocabulary, added, merges = read_vocabulary(folder)
    tokens = [f"[PAD{i}]" for i in range(config["vocab_size"])]
    types = [gguf.TokenType.UNUSED] * len(tokens)
    for texts, kind in ((vocabulary, gguf.TokenType.NORMAL), (added, gguf.TokenType.CONTROL)):
        for text, number in texts.items():
            tokens[number], types[number] = text, kind
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(config["eos_token_id"])
    settings = folder / "tokenizer_config.json"
    template = json.loads(settings.read_text()).get("chat_template") if settings.exists() else None
    if template:
        writer.add_chat_template(template)
