"""Answers of qwen-run serve in one form, streamed or whole. serve.py and serve_beams.py call this."""


def joined(checks, chunks):
    """The choices of a stream as those of a whole answer: text, tokens' logprobs, finish reason."""
    choices = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            text, entries, finish = choices.get(choice["index"], ("", [], None))
            checks.check(finish is None, "a piece comes after the finish reason")
            text += choice["text"] if "text" in choice else choice["delta"].get("content", "")
            entries += entries_of(choice["logprobs"])
            choices[choice["index"]] = (text, entries, choice["finish_reason"])
    return choices


def entries_of(logprobs):
    if logprobs is None:
        return []
    if "content" in logprobs:
        return logprobs["content"]
    return [list(entry) for entry in zip(*(logprobs[key] for key in
            ("tokens", "token_logprobs", "top_logprobs", "text_offset")))]


def whole(answer):
    return {c["index"]: (c["text"] if "text" in c else c["message"]["content"], entries_of(c["logprobs"]),
                         c["finish_reason"]) for c in answer["choices"]}
