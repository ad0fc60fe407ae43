"""The server writes the bytes that a record has: answers, streams and errors of each protocol, with times and ids as they look.

  wire.py FOLDER TEMPLATES MODEL RECORD WORKDIR [write]      MODEL is FOLDER (models/stories), compiled; RECORD is test/Inputs/wire.txt

scripted-server gives the tokens of most answers (test/Unit/ScriptedServer.cpp). `write` renews the record, whose change a reviewer reads.
Numbers of models, such as logprobs, are left out: other tests have them.
"""
import difflib
import json
import os
import pathlib
import re
import sys

from checks import Checks
from marked_model import marked_model
from server import Server

FOLDER, TEMPLATES, MODEL, RECORD, WORK = (pathlib.Path(a) for a in sys.argv[1:6])
CHAT, TEXT, FILL = "/v1/chat/completions", "/v1/completions", "/infill"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
HI = {"messages": [{"role": "user", "content": "Hi"}], "seed": 1}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"where": {"type": "string"}}}}}
CALL = ["<tool_call>", '\n{"name": "look", ', '"arguments": {"where": ', '"x"}}\n', "</tool_call>"]
BROKEN = ["<tool_call>", '\n{"name": "look", "arguments": {"where": ', '}}\n', "</tool_call>"]
THOUGHT = ["<think>", "\nHm.", "\n", "</think>", "\n\n"]
ASK = {**HI, "max_tokens": 200}
TOOLS = {"tools": [{"name": "look", "input_schema": LOOK["function"]["parameters"]}]}
PING = 'event: ping\ndata: {"type":"ping"}\n\n'
KEY = {"Authorization": "Bearer k"}
HEADERS = ("Content-Type", "Allow", "Retry-After", "WWW-Authenticate", "Accept-Encoding", "Cache-Control", "X-Accel-Buffering", "Content-Length")

# Pieces of an answer, a path, and members of the body.
ANSWERS = [
    (["Hi", " there", "."], CHAT, HI),
    (["Hi", " there", "."], CHAT, {**HI, "n": 2, "return_token_ids": True}),
    (["Hi", " there", "."], CHAT, {**HI, "logprobs": True, "top_logprobs": 1, "return_token_ids": True, "return_progress": True}),
    (["Hi", " there", "."], CHAT, {**HI, "max_tokens": 2, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    (["One, two", ", three"], CHAT, {**HI, "stop": [", th"], "stream_options": {"include_usage": True}}),
    (["One", " two"], CHAT, {**HI, "stop": "two", "include_stop_str_in_output": True}),
    ([*THOUGHT, "Yes", "."], CHAT, {**HI, "logprobs": True, "return_token_ids": True}),
    ([*THOUGHT, "Yes", "."], CHAT, {**HI, "reasoning_format": "none"}),
    (["<think>", "\nHm", "."], CHAT, {**HI, "max_tokens": 3}),
    ([*THOUGHT, "I look.\n", *CALL, "\n", *CALL], CHAT, {**HI, "tools": [LOOK], "logprobs": True, "return_token_ids": True}),
    ([*CALL, "\n", *CALL], CHAT, {**HI, "tools": [LOOK], "n": 2}),
    (["Before.\n", *CALL, "\nBetween.\n", *CALL, "\nBehind."], CHAT, {**HI, "tools": [LOOK], "return_token_ids": True}),
    (["<think>", "\nHm.\n", *CALL], CHAT, {**HI, "tools": [LOOK]}),
    (["<think>", "\nHm.\n", *CALL, "\n", "</think>", "Yes."], CHAT, {**HI, "tools": [LOOK]}),
    (BROKEN, CHAT, {**HI, "tools": [LOOK]}),
    (["I look.", *CALL], CHAT, {**HI, "tools": [LOOK], "max_tokens": 12}),
    (CALL, CHAT, {**HI, "tools": [LOOK], "tool_choice": "none"}),
    (["I look.\n", *CALL, "\n", *CALL], CHAT, {**HI, "functions": [LOOK["function"]]}),
    (["Hi"], CHAT, {**HI, "verbose": True}),
    ([*THOUGHT, "Yes", "."], MESSAGES, {**ASK, "thinking": {"type": "adaptive"}}),
    (["Before.\n", *CALL, "\nBetween.\n", *CALL, "\nBehind."], MESSAGES, {**ASK, **TOOLS}),
    (BROKEN, MESSAGES, {**ASK, **TOOLS}),
    (["One, two", ", three"], MESSAGES, {**ASK, "stop_sequences": [", th"]}),
    (["Hi", " there"], MESSAGES, {**ASK, "max_tokens": 1}),
    (["\u6771", "\U0001F600", "."], TEXT, {"prompt": "The king", "logprobs": 1, "echo": True, "seed": 2, "max_tokens": 5, "return_token_ids": True}),
    (["once", " upon"], TEXT, {"prompt": ["a", "b"], "n": 2, "seed": 2, "stream_options": {"include_usage": True}}),
    (["once", " upon"], TEXT, {"prompt": "The king", "echo": True, "max_tokens": 0, "logprobs": 0, "seed": 2}),
    (["once", " upon"], TEXT, {"prompt": "The king", "suffix": " time.", "seed": 2}),
    (["once", " upon"], FILL, {"input_prefix": "a", "input_suffix": "b", "seed": 3}),
    (["once", " upon"], FILL, {"input_prefix": "a", "n_predict": 1, "n": 2, "seed": 3}),
    (["once", " upon"], FILL, {"input_prefix": "a", "stop": ["upon"], "response_fields": ["content", "stop_type", "stopping_word"], "seed": 3}),
    ([*THOUGHT, "I look.\n", *CALL], RESPONSES, {"input": "Hi", "seed": 1, "tools": [{"type": "namespace", "name": "look", "tools": []}, {"type": "function", "name": "look"}]}),
    (["<tool_call>", '\n{"name": "look", "arguments": {"input": ', '"x\\n"}}\n', "</tool_call>"], RESPONSES,
     {"input": "Hi", "seed": 1, "tools": [{"type": "namespace", "name": "n", "tools": []}, {"type": "custom", "name": "look"}], "max_output_tokens": 60}),
    (["Hi", " there", "."], RESPONSES, {"input": [], "seed": 1, "max_output_tokens": 1, "include": ["message.output_text.logprobs"]}),
]

# A method, a path and a body, for a server with a key that takes few bytes and has few pages.
REQUESTS = [
    ("POST", TEXT, {"prompt": "The king", "num_beams": 3, "n": 2, "max_tokens": 6, "seed": 4, "logprobs": 0}),
    ("POST", TEXT, {"prompt": "The king", "num_beams": 3, "n": 2, "max_tokens": 6, "seed": 4, "stream": True}),
    ("POST", "/v1/embeddings", {"input": ["a", "b"], "dimensions": 2}),
    ("POST", "/v1/embeddings", {"input": [[1, 2]], "encoding_format": "base64", "dimensions": 1}),
    ("POST", "/v1/embeddings", {"input": [1, "a", 2], "dimensions": 2}), ("POST", "/v1/embeddings", {"input": ["a", {"text": "b"}], "dimensions": 1}),
    ("POST", TEXT, {"prompt": ["The king", [5, " was"]], "best_of": 3, "max_tokens": 3, "seed": 4}),
    ("POST", TEXT, {"prompt": "The king", "best_of": 2, "n": 3}),
    ("POST", "/v1/rerank", {"query": "a", "documents": ["b"]}),
    ("GET", "/props", None), ("GET", "/slots", None), ("POST", "/apply-template", HI), ("POST", "/v1/chat/completions/input_tokens", HI),
    ("POST", "/tokenize", {"prompt": "The king", "with_pieces": True}), ("POST", "/detokenize", {"tokens": [1, 2]}),
    ("GET", "/v1/models", None), ("GET", "/v1/models/stories", None), ("GET", "/v1/models/a%2Fb", None), ("GET", "/health", None), ("HEAD", "/health", None),
    ("GET", "/nothing", None), ("POST", "/v1/messages/count_tokens", HI), ("GET", CHAT, None), ("DELETE", "/v1/models/a", None), ("OPTIONS", CHAT, None),
    ("POST", CHAT, {**HI, "colour": 1}), ("POST", CHAT, {**HI, "model": "other"}), ("POST", CHAT, {**HI, "stream": True, "n": 1000}), ("POST", CHAT, b"{"), ("POST", CHAT, b""),
    ("POST", CHAT, {"messages": [{"role": "user", "content": "x " * 900}]}), ("POST", CHAT, b"x" * 3000),
    ("POST", TEXT, {"prompt": [5] * 200, "seed": 5}), ("POST", TEXT, {"prompt": [5] * 200, "seed": 5, "stream": True}),
    ("POST", MESSAGES, {}), ("POST", MESSAGES, {**ASK, "model": "other"}), ("GET", MESSAGES, None), ("POST", MESSAGES, {**ASK, "messages": [{"role": "user", "content": "x " * 900}]}),
    ("POST", MESSAGES, {**ASK, "messages": [{"role": "user", "content": "x " * 300}], "stream": True}), ("POST", MESSAGES, b"x" * 3000),
    ("POST", FILL, {"input_prefix": "a"}), ("POST", "/v1/chat/completions/x", {}), ("GET", "/%zz", None),
    ("POST", RESPONSES, {"input": "x " * 900}), ("POST", RESPONSES, {"input": "x " * 300, "seed": 5, "stream": True}), ("POST", RESPONSES, {"previous_response_id": "x"}),
    ("POST", "/v1/responses/input_tokens", {"input": "Hi"}), ("GET", "/v1/responses/resp_1", None),
]
# The same, with headers.
WITH_HEADERS = [
    ("GET", "/v1/models", None, {"Authorization": ""}), ("POST", CHAT, HI, {"Authorization": "Bearer x"}), ("GET", "/nothing", None, {"Authorization": ""}),
    ("GET", "/health", None, {"Authorization": ""}), ("GET", "/v1/models", None, {"Host": "example.org"}), ("POST", CHAT, HI, {"Content-Type": "text/plain"}),
    ("POST", MESSAGES, ASK, {"Authorization": "Bearer x"}), ("GET", "/v1/models", None, {"Anthropic-Version": "2023-06-01"}),
    ("GET", "/v1/models/stories", None, {"Anthropic-Version": "2023-06-01"}),
    ("POST", CHAT, HI, {"Content-Encoding": "gzip"}), ("POST", CHAT, b"0\r\n\r\n", {"Transfer-Encoding": "gzip, chunked"}),
]
# What differs from run to run, or from model to model.
PATTERNS = [
    (r'"((?:chatcmpl|cmpl|call|rerank|req|msg|toolu)[-_])[0-9a-f]{24}"', r'"\1ID"'), (r'"created":[1-9]\d+', '"created":TIME'), (r"\bfp_[0-9a-f]{16}", "fp_ID"),
    (r'"((?:prompt|predicted|time)_(?:ms|per_token_ms|per_second))":[-+.e0-9]+', r'"\1":TIME'), (r'"logprob":-?[.e0-9-]+', '"logprob":N'),
    (r'"x_score":-?[.e0-9-]+', '"x_score":N'), (r'"token_logprobs":\[[^]]*\]', lambda m: re.sub(r"-?[0-9][.e0-9-]*", "N", m[0])),
    (r'"top_logprobs":\[\{"[^]]*\]', '"top_logprobs":[N]'), (r'"top_logprobs":\[null,?[^]]*\]', '"top_logprobs":[null,N]'),
    (r'"((?:resp|msg|rs|fc|ctc)_)[0-9a-f]{24}"', r'"\1ID"'), (r'"created_at":[1-9]\d+', '"created_at":TIME'),
    (r'"embedding":\[[^]]*\]', '"embedding":[N]'), (r'"embedding":"[^"]*"', '"embedding":"N"'), (r'"version":"[^"]*"', '"version":"N"'),
    (r'"build_info":"[^"]*"', '"build_info":"N"'),
]


def ordered(blocks):
    """The events of a stream choice by choice: those of different choices come in any order."""
    def choice(block):
        found = re.search(r'(?:"choices":\[|data: )\{"index":(\d+)', block)
        return int(found[1]) if found else -1 if "prompt_progress" in block else 1 << 30
    return sorted(blocks, key=choice)


def record(server, method, path, body, headers=(), raw=str):
    status, got, text = server.send(method, path, body, dict(headers))
    name = body if body is None or isinstance(body, bytes) and len(body) < 100 else f"{len(body)} bytes" if isinstance(body, bytes) else json.dumps(body)
    blocks = ordered(re.split("(?<=\n\n)", text)) if text.startswith("data:") or ": keep-alive" in text[:20] else [text]
    lines = [f"== {method} {path} {name if len(str(name)) < 400 else str(name)[:100]}{f' {dict(headers)}' if headers else ''}", str(status),
             *(f"{header}: {got[header]}" for header in HEADERS if got[header] and header != "Content-Length" or method == "HEAD" and got[header])]
    text = raw("".join(blocks))
    for pattern, by in PATTERNS:
        text = re.sub(pattern, by, text)
    # What all chunks of a stream begin with stands once.
    if head := re.match(r'data: \{"id":.*?,"choices":\[', text):
        text = head[0] + text[head.end():].replace(head[0], "data: ^")
    text = text.replace("\n\n", "\n")
    return "\n".join([*lines, text.removesuffix("\n")])


def answers(model):
    server = Server(model, program=["scripted-server", model, TEMPLATES / "Qwen-Qwen3-0.6B.jinja"])
    for pieces, path, body in ANSWERS:
        server.post("/script", pieces=pieces)
        # The members of FILL's stream count the tokens of all choices so far.
        for stream in (False, True)[:1 if path == FILL and "n" in body else 2]:
            yield f"== {' | '.join(pieces)!r}\n" + record(server, "POST", path, {**body, "stream": stream} if stream else body)
    server.stop()


def framings(model):
    """A request that is refused before its body is read has the error of its path's protocol."""
    server = Server(model, program=["scripted-server", model, TEMPLATES / "Qwen-Qwen3-0.6B.jinja", "api-key=k", "max-body=2000"])
    for path in ("/script/x", CHAT, "/nothing"):
        for body, headers in ((b"{}", {}), (b"x" * 3000, KEY), (b"{}", {**KEY, "Transfer-Encoding": "gzip"}), (b"{}", {**KEY, "Host": "a.example"})):
            yield record(server, "POST", path, body, headers)
    server.stop()


def requests():
    # Drafts depend on times, and change the cuts of streams.
    server = Server(MODEL, "--speculate", "off", "--max-body", "2000", "--kv-pages", "3", "--no-prefix-cache", "--name", "stories", env={**os.environ, "QWEN_RUN_API_KEY": "k"})
    for method, path, body in REQUESTS:
        yield record(server, method, path, body, KEY).replace(f" {KEY}", "")
    for method, path, body, headers in WITH_HEADERS:
        yield record(server, method, path, body, {**KEY, **headers})
    server.stop()
    # How many comments a stream has that waits depends on the machine.
    server = Server(MODEL, "--speculate", "off", "--keep-alive", "0.01")
    body = {"prompt": [5] * 900, "max_tokens": 1, "seed": 6, "stream": True}
    yield record(server, "POST", TEXT, body, raw=lambda text: re.sub("(: keep-alive\n\n)+", r"\1", text))
    body = {**ASK, "messages": [{"role": "user", "content": "x " * 400}], "max_tokens": 1, "stream": True}
    yield record(server, "POST", MESSAGES, body, raw=lambda text: text.replace(PING, "ping\n", 1).replace(PING, ""))
    server.stop()


def main():
    checks = Checks()
    marked = marked_model(FOLDER, WORK)
    text = "\n".join([*answers(marked), *framings(marked), *requests()]) + "\n"
    if sys.argv[6:] == ["write"]:
        RECORD.write_text(text)
        return
    difference = list(difflib.unified_diff(RECORD.read_text().splitlines(), text.splitlines(), "record", "server", lineterm="", n=2))
    checks.check(not difference, "\n".join(line[:600] for line in difference[:60]))
    checks.finish()


main()
