"""Calls of tools over HTTP, in both formats: the same whole and streamed, whatever the tokens; results, the next turn, finish reasons, refusals.
Budgets of the reasoning, and texts between two others.

  tools.py MODEL TEMPLATES PACKAGES WORKDIR      MODEL is models/stories, compiled; the other model has random weights and the vocabulary of Qwen2

A test program writes the answers token by token (test/Unit/ScriptedServer.cpp). OpenAI's client for Python runs one loop of an agent.
"""
import json
import pathlib
import random
import sys

from checks import Checks
from marked_model import qwen2_model
from packages import check_client
from server import Server

stories, TEMPLATES, packages, WORK = (pathlib.Path(a) for a in sys.argv[1:])
HERE = pathlib.Path(__file__).parent
CLIENT = "openai==3.54.0"  # as in clients.py
CHAT = "/v1/chat/completions"
LOOK = {"type": "function", "function": {"name": "look", "description": "Look", "parameters": {
    "type": "object", "properties": {"where": {"type": "string"}, "count": {"type": "integer"}}, "required": ["where"]}}}
HI = [{"role": "user", "content": "Hi"}]
# The same two calls in each format, and their arguments.
ARGUMENTS = [{"where": "a \"b\"\n</tool_call>\u6771", "count": 2}, {}]
CALLS = {
    "hermes": "".join('<tool_call>\n{"name": "look", "arguments": %s}\n</tool_call>\n' % json.dumps(a, ensure_ascii=False) for a in ARGUMENTS),
    "xml": '<tool_call>\n<function=look>\n<parameter=where>\na "b"\n</tool_call>\u6771\n</parameter>\n<parameter=count>\n2\n</parameter>\n</function>\n'
           '</tool_call>\n<tool_call>\n<function=look>\n</function>\n</tool_call>\n'}
checks = Checks()


def start(template, *options, model=stories):
    return Server(model, program=["scripted-server", model, TEMPLATES / f"{template}.jinja", *options])


def script(server, *pieces, ends=True):
    server.post("/script", pieces=pieces, ends=ends)


def joined(server, **body):
    """The message and finish reason of a streamed answer."""
    status, _, text = server.send("POST", CHAT, {"messages": HI, "stream": True, **body})
    checks.check(status == 200, f"{status} {text}")
    message, finish = {"content": "", "reasoning_content": "", "tool_calls": []}, None
    for line in text.split("\n\n"):
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            checks.check(finish is None, "a piece comes after the finish reason")
            finish = choice["finish_reason"]
            delta = choice["delta"]
            for name in ("content", "reasoning_content"):
                message[name] += delta.get(name) or ""
            for call in delta.get("tool_calls", []):
                calls = message["tool_calls"]
                if "id" in call:
                    checks.check(call["index"] == len(calls) and call["type"] == "function", f"{call}")
                    calls.append(dict(call["function"]))
                else:
                    calls[call["index"]]["arguments"] += call["function"]["arguments"]
    return message, finish


def whole(server, **body):
    choice = server.post(CHAT, messages=HI, **body)["choices"][0]
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls", [])]
    checks.check(len({call["id"] for call in message.get("tool_calls", [])}) == len(calls), "ids of calls are not unique")
    checks.check((message["content"] is None) == (bool(calls) and not message["content"]), f"content {message['content']!r}")
    return {"content": message["content"] or "", "reasoning_content": message.get("reasoning_content", ""), "tool_calls": calls}, \
        choice["finish_reason"]


def expect(server, expected, finish, **body):
    for got in (joined(server, **body), whole(server, **body)):
        checks.check(got == (expected, finish), f"{got} is not {expected} {finish}")


def message(content="", calls=(), reasoning=""):
    return {"content": content, "reasoning_content": reasoning, "tool_calls": list(calls)}


def splits(text, seed):
    """The text in pieces, which become tokens of their own."""
    numbers = random.Random(seed)
    pieces = []
    while text:
        size = numbers.randrange(1, 12)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def calls(server, kind):
    text = "I look.\n" + CALLS[kind]
    for pieces in ([text], *(splits(text, seed) for seed in range(3))):
        script(server, *pieces)
        got, finish = whole(server, tools=[LOOK])
        checks.check([json.loads(call["arguments"]) for call in got["tool_calls"]] == ARGUMENTS and got["content"] == "I look." and
                     finish == "tool_calls", f"{kind}: {got} {finish}")
        expect(server, got, "tool_calls", tools=[LOOK])
    # Two choices have the calls of their own.
    answer = server.post(CHAT, messages=HI, tools=[LOOK], n=2)
    checks.check([len(c["message"]["tool_calls"]) for c in answer["choices"]] == [2, 2], "n")
    # Without tools, and with none of them, it is text.
    for body in ({}, {"tools": [LOOK], "tool_choice": "none"}):
        expect(server, message(text), "stop", **body)
    # A call that is cut is no call to run.
    short = whole(server, tools=[LOOK], max_tokens=40)
    checks.check(short[1] == "length", f"{short}")
    expect(server, *short, tools=[LOOK], max_tokens=40)
    # An agent may send back what it got, whatever the cut left of it.
    for tokens in range(1, 80, 3):
        cut = server.post(CHAT, messages=HI, tools=[LOOK], max_tokens=tokens)["choices"][0]["message"]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "broken"} for call in cut.get("tool_calls", [])]
        status, _, text = server.send("POST", CHAT, {"messages": [*HI, cut, *results], "tools": [LOOK], "max_tokens": 1})
        checks.check(status == 200, f"{cut}: {status} {text}")
    # A stop string counts in the text alone: neither in marks and arguments of calls nor in line breaks beside them.
    expect(server, got, "tool_calls", tools=[LOOK], stop=["b", "\n", "call", "count"])
    expect(server, message("I "), "stop", tools=[LOOK], stop="look")


def next_turn(server, kind):
    """A result goes back. All of the first prompt is in the cache."""
    script(server, CALLS[kind].split("\n<tool_call>")[0])
    first = server.post(CHAT, messages=HI, tools=[LOOK])
    answer = first["choices"][0]["message"]
    for change in (str, json.loads):
        called = json.loads(json.dumps(answer))
        for call in called["tool_calls"]:
            call["function"]["arguments"] = change(call["function"]["arguments"])
        result = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "nothing"}
        script(server, "Nothing is there.")
        second = server.post(CHAT, messages=[*HI, called, result], tools=[LOOK])
        checks.check(second["choices"][0]["message"]["content"] == "Nothing is there.", f"{second}")
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        checks.check(cached >= first["usage"]["prompt_tokens"] - 64, f"{kind}: {cached} of {first['usage']['prompt_tokens']} tokens were cached")


def thoughts(server):
    """A call in the reasoning is one if the answer ends behind it."""
    call = '<tool_call>\n{"name": "look", "arguments": {"where": "x"}}\n</tool_call>'
    look = {"name": "look", "arguments": '{"where": "x"}'}
    think, thought, ends, yes = "<think>", splits("\nHm.\n", 1), "</think>", splits("\n\nYes.", 2)
    script(server, think, *thought, ends, "\n\n", *splits(call, 3))
    expect(server, message("", [look], "Hm."), "tool_calls", tools=[LOOK])
    script(server, think, *thought, *splits(call, 4))
    expect(server, message("", [look], "Hm."), "tool_calls", tools=[LOOK])
    script(server, think, *thought, *splits(call, 5), "\n", ends, *yes)
    expect(server, message("Yes.", [], "Hm.\n" + call), "stop", tools=[LOOK])
    text = "<think>\nHm.\n" + call + "\n</think>\n\nYes."
    expect(server, message(text), "stop", tools=[LOOK], reasoning_format="none")
    # Neither stop strings nor stop tokens count in it, or in the line breaks behind it.
    breaks = [server.post("/tokenize", prompt=text)["tokens"][0] for text in ("\n", "\n\n", "x")]
    script(server, think, "\nHm.\n", "x", ends, "\n\n", "Yes", ".\n\n", "No.")
    expect(server, message("Yes.", [], "Hm.\nx"), "stop", stop=["\n\n", "x"])
    script(server, think, "\nHm", "\n", "x", ends, "\n\n", "Yes", "x", "No.")
    expect(server, message("Yes", [], "Hm\nx"), "stop", stop_token_ids=breaks)
    checks.check(server.post(CHAT, messages=HI, stop_token_ids=breaks)["choices"][0]["stop_reason"] == breaks[2], "the stop token is not named")


def budgets(server):
    """Exactly as many tokens between the marks, the message among them."""
    tokens = {text: server.post("/tokenize", prompt=text)["tokens"] for text in ("Stop.", "<think>", "</think>")}
    message, [open_], [close] = tokens.values()
    script(server, "<think>", *"abcdefgh", "</think>", "Hi")
    for budget in (len(message), 5, 7):
        answer = server.post(CHAT, messages=HI, thinking_token_budget=budget, thinking_budget_message="Stop.", return_token_ids=True)
        choice = answer["choices"][0]
        ids = choice["token_ids"]
        checks.check(ids[0] == open_ and ids.index(close) == budget + 1 and ids[1 + budget - len(message):1 + budget] == message, f"{budget}: {ids}")
        checks.check(answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == budget, f"{answer['usage']}")
        checks.check(choice["message"]["reasoning_content"] == choice["message"]["reasoning"] == "abcdefgh"[:budget - len(message)] + "Stop.",
                     f"{choice}")
    for body, needed in (({"thinking_token_budget": len(message) - 1, "thinking_budget_message": "Stop."}, "more than thinking_token_budget"),
                         ({"thinking_token_budget": 9, "thinking_budget_message": "a</think>"}, "must not contain </think>")):
        status, _, text = server.send("POST", CHAT, {"messages": HI, **body})
        checks.check(status == 400 and needed in text, f"{body}: {status} {text}")


def fills(server):
    """A text between two others: the prompt, the answer, and llama-server's form."""
    fim = {name: server.post("/tokenize", prompt=f"<|{name}|>")["tokens"] for name in
           ("fim_prefix", "fim_suffix", "fim_middle", "repo_name", "file_sep")}
    ids = lambda text: server.post("/tokenize", prompt=text)["tokens"] if text else []
    script(server, "once", " upon")
    answer = server.post("/v1/completions", prompt="The king", suffix=" time.", return_token_ids=True)
    choice = answer["choices"][0]
    expected = [*fim["fim_prefix"], *ids("The king"), *fim["fim_suffix"], *ids(" time."), *fim["fim_middle"]]
    checks.check(choice["text"] == "once upon" and choice["prompt_token_ids"] == expected, f"{choice} {expected}")
    body = {"input_prefix": "The king", "input_suffix": " time.", "prompt": "a", "input_extra": [{"filename": "f", "text": "x"}]}
    answer = server.post("/infill", **body)
    length = sum(map(len, fim.values())) + len(fim["file_sep"]) + sum(len(ids(t)) for t in ("The king", " time.", "a", "repository\n", "f\nx", "file\n"))
    checks.check((answer["content"], answer["stop"], answer["stop_type"], answer["tokens_evaluated"]) == ("once upon", True, "eos", length), f"{answer}")
    events = [json.loads(line[6:]) for line in server.send("POST", "/infill", {**body, "stream": True})[2].split("\n\n") if line]
    checks.check("".join(event["content"] for event in events) == "once upon" and [event["stop"] for event in events][-1], f"{events}")
    # What llama.vim asks for, by the paths that it reads; nothing where it only warms the cache.
    vim = {**body, "input_extra": [{"text": "x"}], "samplers": ["top_k", "infill"], "n_indent": 2, "t_max_prompt_ms": 500, "id_slot": 0}
    for more, members in (({"response_fields": ["content", "timings/prompt_n", "stopped"]}, {"content", "timings/prompt_n"}),
                          ({"response_fields": [""], "samplers": [], "n_predict": 0}, set())):
        answer = server.post("/infill", **vim, **more) if "samplers" not in more else server.post("/infill", **{**vim, **more})
        checks.check(set(answer) == members and answer.get("content", "once upon") == "once upon", f"{more}: {answer}")
    # A token behind the middle ends it.
    script(server, "once", "<|file_sep|>", "x")
    checks.check(server.post("/infill", input_prefix="a")["content"] == "once", "a token of the next file does not end the text")


def refusals():
    server = start("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B")
    status, _, text = server.send("POST", CHAT, {"messages": HI, "tools": [LOOK]})
    checks.check(status == 400 and json.loads(text)["error"]["param"] == "tools" and "ignores tools" in text, f"{status} {text}")
    for path, body in (("/v1/completions", {"prompt": "a", "suffix": "b"}), ("/infill", {"input_prefix": "a"})):
        status, _, text = server.send("POST", path, body)
        checks.check(status == 400 and "needs a model with the tokens <|fim_prefix|>" in text, f"{path}: {status} {text}")
    server.stop()
    server = start("Qwen3-Coder", "tool-format=hermes")
    script(server, CALLS["hermes"])
    checks.check(whole(server, tools=[LOOK])[1] == "tool_calls", "--tool-format has no effect")
    server.stop()


for name, kind in (("Qwen-Qwen3-0.6B", "hermes"), ("Qwen3-Coder", "xml")):
    server = start(name)
    calls(server, kind)
    next_turn(server, kind)
    if kind == "hermes":
        script(server, CALLS[kind].split("\n<tool_call>")[0])
        check_client(checks, "OpenAI", CLIENT, packages, HERE / "client_tools.py", server.address)
    server.stop()
# The marks are tokens.
server = start("Qwen-Qwen3-0.6B", model=qwen2_model(TEMPLATES.with_name("qwen2"), WORK, TEMPLATES / "Qwen-Qwen3-0.6B.jinja"))
calls(server, "hermes")
next_turn(server, "hermes")
thoughts(server)
budgets(server)
fills(server)
server.stop()
refusals()
checks.finish()
