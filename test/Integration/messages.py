"""/v1/messages: what agents such as Claude Code send, whole and streamed; the cache from turn to turn; the same prompts as a chat's; refusals.

  messages.py MODEL TEMPLATES PACKAGES WORKDIR      MODEL is models/stories, compiled; the other model has random weights and the vocabulary of Qwen2

A test program writes the answers (test/Unit/ScriptedServer.cpp). client_messages.py does the same with Anthropic's client for Python.
"""
import json
import pathlib
import sys

from checks import Checks
from marked_model import qwen2_model
from packages import check_client
from server import Server

stories, TEMPLATES, packages, WORK = (pathlib.Path(a) for a in sys.argv[1:])
HERE = pathlib.Path(__file__).parent
CLIENT = "anthropic==2.14.0"
CHAT, MESSAGES, COUNT = "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"
PAGE = 64
HI = [{"role": "user", "content": "Hi"}]
ROWS = [json.loads(line) for line in (TEMPLATES.parents[1] / "requests.jsonl").read_text().splitlines()]
checks = Checks()


def start(model, template, *options):
    return Server(model, program=["scripted-server", model, TEMPLATES / f"{template}.jinja", *options])


def pieces_of(content):
    """What the model writes for these blocks."""
    for number, block in enumerate(content):
        if block["type"] == "thinking":
            yield from ("<think>", f"\n{block['thinking']}\n", "</think>", "\n\n")
        elif block["type"] == "text":
            yield block["text"]
        else:
            yield from ("\n"[:number], "<tool_call>", "\n" + json.dumps({"name": block["name"], "arguments": block["input"]}) + "\n", "</tool_call>")


def plain(block):
    return {key: value for key, value in block.items() if key not in ("id", "signature")}


def streamed(text):
    """The message of a stream, whose events come in their order."""
    message, opened = None, None
    for event in text.split("\n\n"):
        if not event:
            continue
        kind, data = event.split("\n")
        data = json.loads(data.removeprefix("data: "))
        checks.check(kind == f"event: {data['type']}", f"{event}")
        match data["type"]:
            case "message_start":
                checks.check(message is None, "the message begins twice")
                message = data["message"]
            case "content_block_start":
                checks.check(opened is None and data["index"] == len(message["content"]), f"{event}")
                opened = dict(data["content_block"])
                pieces = ""
            case "content_block_delta":
                checks.check(data["index"] == len(message["content"]), f"{event}")
                delta = data["delta"]
                if delta["type"] == "input_json_delta":
                    pieces += delta["partial_json"]
                elif delta["type"] == "signature_delta":
                    opened["signature"] = delta["signature"]
                else:
                    name = delta["type"].removesuffix("_delta")
                    opened[name] += delta[name]
            case "content_block_stop":
                if pieces:
                    opened["input"] = json.loads(pieces)
                message["content"].append(opened)
                opened = None
            case "message_delta":
                checks.check(opened is None and data["usage"]["input_tokens"] == message["usage"]["input_tokens"] and
                             data["usage"]["cache_read_input_tokens"] == message["usage"]["cache_read_input_tokens"], f"{event} {message}")
                message |= data["delta"] | {"usage": data["usage"]}
            case "message_stop":
                checks.check(message["stop_reason"] is not None, f"{event}")
            case _:
                checks.check(data["type"] == "ping", f"{event}")
    return message


def total(usage):
    return usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]


def asked(server, body):
    """The message of an answer, which a stream has, too. The tokens are those that were counted."""
    counted = {key: value for key, value in body.items() if key not in ("max_tokens", "stream", "metadata")}
    count = server.post(COUNT, **counted)["input_tokens"]
    whole = server.post(MESSAGES, **{**body, "stream": False})
    _, headers, text = server.send("POST", MESSAGES + "?beta=true", {**body, "stream": True}, {"anthropic-beta": "claude-code-20250219,of-next-year-2027-01-01"})
    checks.check(headers["Content-Type"].startswith("text/event-stream"), f"{headers}")
    stream = streamed(text)
    parts = [([plain(block) for block in each["content"]], each["stop_reason"], each["stop_sequence"], total(each["usage"])) for each in (whole, stream)]
    checks.check(parts[0] == parts[1] and parts[0][3] == count, f"{parts} {count}")
    return whole


def replays(server):
    """Requests of the structure that agents send, with texts of our own."""
    for row in ROWS:
        if row.get("path") != MESSAGES:
            continue
        body, expected = {**row["body"], "model": server.model}, row["answer"]
        if "error" in expected:
            status, _, text = server.send("POST", MESSAGES, body)
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": expected["error"]}}
            checks.check(status == 400 and json.loads(text) == error, f"{status} {text}")
            continue
        server.post("/script", pieces=list(pieces_of(expected["content"])))
        message = asked(server, body)
        reason = "tool_use" if expected["content"][-1]["type"] == "tool_use" else "max_tokens" if body["max_tokens"] == 1 else "end_turn"
        checks.check(([plain(b) for b in message["content"]], message["stop_reason"]) == (expected["content"], reason), f"{body}: {message}")


def turns(server):
    """The next turn of an agent reads what is new alone, though a line of its system text changes; so does a chat's."""
    bodies = [{**row["body"], "model": server.model, "stream": False} for row in ROWS if row.get("path") == MESSAGES and len(row["body"].get("tools", [])) == 30]
    first, second = bodies[:2]
    answer = next(row["answer"]["content"] for row in ROWS if row.get("path") == MESSAGES and row["body"].get("system") == first["system"])
    salt = {"cache_salt": "turns"}
    server.post("/script", pieces=list(pieces_of(answer)))
    before = server.post(MESSAGES, **first, **salt)
    checks.check(before["usage"]["cache_read_input_tokens"] == 0 and total(before["usage"]) > 3000, f"{before['usage']}")
    # What came back, with its ids and signatures.
    messages = json.loads(json.dumps(second["messages"]))
    if calls := [block["id"] for block in before["content"] if block["type"] == "tool_use"]:
        messages[2]["content"] = before["content"]
        for block in messages[3]["content"]:
            if block["type"] == "tool_result":
                block["tool_use_id"] = calls.pop(0)
    after = server.post(MESSAGES, **{**second, "messages": messages}, **salt)
    cached = after["usage"]["cache_read_input_tokens"]
    checks.check(cached >= 0.95 * total(before["usage"]), f"{cached} of {total(before['usage'])} tokens were cached")
    # The same conversation of a chat has the same tokens.
    chat = [{"role": "system", "content": block["text"]} for block in second["system"][1:]]
    for message in second["messages"]:
        chat += as_chat(message)
    tools = [{"type": "function", "function": {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}} for tool in second["tools"]]
    usage = server.post(CHAT, messages=chat, tools=tools, enable_thinking=True, reasoning_effort="high", max_tokens=1, **salt)["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    checks.check(usage["prompt_tokens"] == total(after["usage"]) and cached >= usage["prompt_tokens"] - PAGE, f"{usage} {after['usage']}")


def as_chat(message):
    """A message of content blocks as a chat's."""
    content, results = message["content"], []
    if isinstance(content, str):
        return [message]
    text = "".join(block.get("text", "") for block in content)
    for block in content:
        if block["type"] == "tool_result":
            inner = block["content"]
            inner = inner if isinstance(inner, str) else "".join(part["text"] for part in inner)
            results.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": ("Error: " if block.get("is_error") else "") + inner})
    calls = [{"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": json.dumps(block["input"])}}
             for block in content if block["type"] == "tool_use"]
    thinking = "".join(block.get("thinking", "") for block in content)
    return results + [{"role": message["role"], "content": text, **({"reasoning_content": thinking} if thinking else {}), **({"tool_calls": calls} if calls else {})}]


def ends(server):
    """Why an answer ends, and what a cut leaves."""
    think, text = {"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"type": "text", "text": "One two three"}
    body = {"model": server.model, "max_tokens": 50, "messages": HI}
    server.post("/script", pieces=["<think>", "\nHm.\n", "</think>", "\n\n", "One", " two", " three"])
    message = asked(server, {**body, **think})
    checks.check([plain(b) for b in message["content"]] == [{"type": "thinking", "thinking": "Hm."}, text] and
                 message["content"][0]["signature"] and message["usage"]["output_tokens_details"]["thinking_tokens"] > 0, f"{message}")
    message = asked(server, {**body, **think, "stop_sequences": [" th", "Hm"]})
    checks.check((message["content"][1]["text"], message["stop_reason"], message["stop_sequence"]) == ("One two", "stop_sequence", " th"), f"{message}")
    message = asked(server, {**body, **think, "max_tokens": 4})
    checks.check([b["type"] for b in message["content"]] == ["thinking"] and message["stop_reason"] == "max_tokens", f"{message}")
    server.post("/script", pieces=["One"], ends=False)
    message = server.post(MESSAGES, **{**body, "max_tokens": 100000, "messages": [{"role": "user", "content": "a " * 8100}]})
    checks.check(message["stop_reason"] == "model_context_window_exceeded", f"{message['stop_reason']}")
    # A call that is cut or broken has what came of it in a stream, and is not run.
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    server.post("/script", pieces=["<tool_call>", '\n{"name": "look", "arguments": {"where": ', '"x"}}\n', "</tool_call>"])
    for most in range(1, 16):
        message = server.post(MESSAGES, **{**body, "tools": tools, "max_tokens": most})
        status, _, stream = server.send("POST", MESSAGES, {**body, "tools": tools, "max_tokens": most, "stream": True})
        done = message["stop_reason"] == "tool_use"
        checks.check(status == 200 and stream.count('"content_block_start"') == stream.count('"content_block_stop"') == len(message["content"]) and
                     f'"stop_reason":"{message["stop_reason"]}"' in stream, f"{most}: {stream}")
        called = [block for block in message["content"] if block["type"] == "tool_use"]
        checks.check(all(block["input"] in (({"where": "x"},) if done else ({}, {"where": "x"})) for block in called) and (called or not done), f"{message}")
        results = [{"type": "tool_result", "tool_use_id": block["id"]} for block in called]
        server.post(MESSAGES, **{**body, "tools": tools, "messages": [*HI, {"role": "assistant", "content": message["content"]}, {"role": "user", "content": results}]})
    # The answer continues the last message.
    server.post("/script", pieces=[" three"])
    filled = server.post(MESSAGES, **{**body, "messages": [*HI, {"role": "assistant", "content": "One two"}]})
    checks.check(filled["content"] == [{"type": "text", "text": " three"}], f"{filled}")


def later_system(server):
    """A system message behind others stays where it stands, also where the template refuses it, and has a mark then. A chat does the same."""
    server.post("/script", pieces=["Yes."])
    said = [*HI, {"role": "assistant", "content": "Yes."}, {"role": "system", "content": "Hurry."}, {"role": "user", "content": "And then?"}]
    marked = [{"role": "user", "content": "<system>\nHurry.\n</system>"} if message["role"] == "system" else message for message in said]
    rules = "Rules. " * 100
    counts = []
    for messages in (said, marked):
        body = {"model": server.model, "system": [{"type": "text", "text": rules}, {"type": "text", "text": "Be brief."}], "messages": messages}
        counts.append(server.post(COUNT, **body)["input_tokens"])
        for role in ("system", "developer"):
            chat = [{"role": role, "content": rules}, {"role": role, "content": "Be brief."},
                    *({**message, "role": role} if message["role"] == "system" else message for message in messages)]
            usage = server.post(CHAT, messages=chat, enable_thinking=False, max_tokens=1)["usage"]
            counts.append(usage["prompt_tokens"])
    checks.check(len(set(counts)) == 1, f"{counts}")
    # The front is what it was without the later message.
    usage = server.post(CHAT, messages=[{"role": "system", "content": rules + "\n\nBe brief."}, *HI], enable_thinking=False, max_tokens=1)["usage"]
    checks.check(usage["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 2 * PAGE, f"{usage}")
    # There is no user at all.
    for messages in ([{"role": "system", "content": "Be brief."}], [{"role": "assistant", "content": "Yes, and"}]):
        asked(server, {"model": server.model, "max_tokens": 5, "messages": messages})


def refusals(server):
    """Errors have Anthropic's form, and words that agents know."""
    body = {"model": server.model, "max_tokens": 5, "messages": HI}
    for sent, headers, status, kind, words in (
            ({**body, "model": "other"}, {}, 404, "not_found_error", "no such model"), (body, {"x-api-key": "other"}, 401, "authentication_error", "an API key is needed"),
            ({**body, "messages": [{"role": "user", "content": "a " * 9000}]}, {}, 400, "invalid_request_error", "prompt is too long: 9"),
            (b"{", {}, 400, "invalid_request_error", "the body"), (b"x" * 3000000, {}, 413, "request_too_large", "the body has more than"),
            ({**body, "tool_choice": {"type": "any"}}, {}, 400, "invalid_request_error", "tool_choice needs tools")):
        got, _, text = server.send("POST", MESSAGES, sent, {"x-api-key": "secret", **headers})
        error = json.loads(text)
        checks.check(got == status and error["type"] == "error" and error["error"]["type"] == kind and error["error"]["message"].startswith(words), f"{got} {text[:300]}")
    got, _, text = server.send("GET", MESSAGES, headers={"x-api-key": "secret"})
    checks.check(got == 405 and json.loads(text)["error"]["type"] == "invalid_request_error", f"{got} {text}")
    for path in ("/", "/health"):
        checks.check(server.send("HEAD", path)[0] == 200, f"HEAD {path}")


def notes():
    """What has no effect is a line of the log, once. A text that is far too long is not read."""
    server = Server(stories)
    unknown = [{"type": "of_next_year"}, {"type": "of_next_year"}, {"type": "text", "text": "Hi"}]
    server.post(MESSAGES, max_tokens=3, messages=[{"role": "user", "content": unknown}], fallbacks=[], metadata={}, tools=[{"type": "web_search_20260318", "name": "web_search"}])
    status, _, text = server.send("POST", MESSAGES, {"max_tokens": 3, "messages": [{"role": "user", "content": "x" * 100000}]})
    checks.check(status == 400 and '"prompt is too long: messages[0] has 100000 bytes' in text, text)
    log = server.stop()[1]
    for line in ('of type "of_next_year" is left out', "unknown parameter fallbacks has no effect", 'of type "web_search_20260318" is left out'):
        checks.check(log.count(line) == 1, f"{line}: {log}")
    checks.check("metadata" not in log, log)


model = qwen2_model(TEMPLATES.with_name("qwen2"), WORK, TEMPLATES / "Qwen-Qwen3-0.6B.jinja", 8192)
server = start(model, "Qwen-Qwen3-0.6B")
server.model = model.stem
replays(server)
turns(server)
ends(server)
server.stop()
for template in ("Qwen3.5-4B", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"):
    server = start(model, template)
    server.model = model.stem
    later_system(server)
    if template == "Qwen3.5-4B":
        turns(server)
    server.stop()
server = start(model, "Qwen-Qwen3-0.6B", "api-key=secret", "max-body=2000000")
server.model = model.stem
refusals(server)
check_client(checks, "Anthropic", CLIENT, packages, HERE / "client_messages.py", server.address, model.stem)
server.stop()
notes()
checks.finish()
