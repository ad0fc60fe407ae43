"""Texts to train with: from files to windows of tokens."""
from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import torch  # type: ignore

from .._errors import Error

# Between the texts of a file, as in the files of calibration.
END_OF_TEXT = "<|endoftext|>"
# The roles that ShareGPT gives to speakers.
ROLES = {"human": "user", "gpt": "assistant"}


def _message(value: dict[str, Any]) -> dict[str, Any]:
    if "from" in value:
        return {"role": ROLES.get(value["from"], value["from"]), "content": value["value"]}
    return value


def _messages(record: Any) -> list[dict[str, Any]] | None:
    """The conversation of a record: messages, ShareGPT's conversations, or an instruction of Alpaca with its output."""
    if not isinstance(record, dict):
        return None
    for key in ("messages", "conversations"):
        if isinstance(record.get(key), list):
            return [_message(each) for each in record[key]]
    if "instruction" in record and "output" in record:
        question = "\n\n".join(record[key] for key in ("instruction", "input") if record.get(key))
        return [{"role": "user", "content": question}, {"role": "assistant", "content": record["output"]}]
    return None


def _records(path: pathlib.Path, text: str) -> list[Any] | None:
    """The records of a file of JSON or of lines of JSON; None for a text."""
    if path.suffix == ".json":
        try:
            found = json.loads(text)
        except ValueError as error:
            raise Error(f"{path} is not JSON: {error}") from None
        if not isinstance(found, list):
            raise Error(f"{path} has no list of records")
        return found
    if path.suffix != ".jsonl":
        return None
    records = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            records += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            raise Error(f"{path}:{number} is not JSON: {error}") from None
    return records


def _text_of(record: Any, tokenizer: Any) -> str:
    if isinstance(record, dict) and isinstance(record.get("text"), str):
        return str(record["text"])
    messages = _messages(record)
    if messages is None:
        raise ValueError("a record has neither messages nor conversations, instruction and output, nor text")
    return str(tokenizer.apply_chat_template(messages, tokenize=False))


def texts(path: pathlib.Path, tokenizer: Any) -> Iterator[str]:
    """The texts of a file: of lines of JSON (.jsonl) or a list (.json), conversations by the chat template, records of Alpaca or texts; else
    a text, in which <|endoftext|> parts one from the next. Raises Error."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise Error(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    records = _records(path, content)
    if records is None:
        yield from (part.strip() for part in content.split(END_OF_TEXT) if part.strip())
        return
    for number, record in enumerate(records, 1):
        try:
            yield _text_of(record, tokenizer)
        except Exception as error:  # A chat template raises what it likes.
            raise Error(f"record {number} of {path} cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from None


def windows(files: list[pathlib.Path], tokenizer: Any, window: int) -> Any:
    """The tokens of all files as int64 [windows, window]: one text behind the other, each with the token of its end. The last tokens that fill
    no window are left out. Raises Error for files without tokens."""
    ids: list[int] = []
    end = tokenizer.get_vocab().get(END_OF_TEXT, tokenizer.eos_token_id)
    for path in files:
        before = len(ids)
        for text in texts(path, tokenizer):
            ids += tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
            if end is not None:
                ids.append(end)
        if len(ids) == before:
            raise Error(f"{path} has no tokens")
    count = len(ids) // window
    if count < 2:
        raise Error(f"the data has {len(ids)} tokens when two windows of {window} are needed, one of which is held out; give more, or a smaller --window")
    return torch.tensor(ids[:count * window]).reshape(count, window)
