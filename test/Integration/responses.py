"""/v1/responses: what agents such as Codex send, whole and streamed; the cache from turn to turn; the same prompts as a chat's; cut answers.

  responses.py MODEL TEMPLATES PACKAGES WORKDIR      MODEL is models/stories, compiled; the other model has random weights and the vocabulary of Qwen2

A test program writes the answers (test/Unit/ScriptedServer.cpp). client_responses.py does the same with OpenAI's client for Python.
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
CLIENT = "openai==3.54.0"  # as in clients.py
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
PAGE = 64
ROWS = [row for row in map(json.loads, (TEMPLATES.parents[1] / "requests.jsonl").read_text().splitlines()) if row.get("path") == RESPONSES]
# The member of an item with its text, and the events that have it.
TEXTS = {"message": ("content", "response.output_text"), "reasoning": ("content", "response.reasoning_text"),
         "function_call": ("arguments", "response.function_call_arguments"), "custom_tool_call": ("input", "response.custom_tool_call_input")}
checks = Checks()


def pieces_of(items):
    """What the model writes for these items."""
    for number, item in enumerate(items):
        match item["type"]:
            case "reasoning":
                yield from ("<think>", f"\n{item['text']}\n", "</think>", "\n\n")
            case "message":
                yield item["text"]
            case kind:
                name = "__".join(filter(None, (item.get("namespace"), item["name"])))
                arguments = item["arguments"] if kind == "function_call" else json.dumps({"input": item["input"]})
                yield from ("\n"[:number], "<tool_call>", '\n{"name": "%s", "arguments": %s}\n' % (name, arguments), "</tool_call>")


def text_of(item):
    member = item[TEXTS[item["type"]][0]]
    return member if isinstance(member, str) else "".join(part["text"] for part in member)


def plain(item):
    """An item as requests.jsonl has it."""
    if item["type"] in ("message", "reasoning"):
        return {"type": item["type"], "text": text_of(item)}
    return {key: item[key] for key in ("type", "name", "namespace", "arguments", "input") if key in item}


def streamed(text):
    """The response of a stream, whose events come in their order."""
    items, response = [], None
    for number, block in enumerate(text.removesuffix("\n\n").split("\n\n")):
        kind, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        what = event["type"]
        checks.check(kind == f"event: {what}" and event["sequence_number"] == number and response is None, f"{number}: {block}")
        if number < 2:
            checks.check(what == ("response.created", "response.in_progress")[number] and event["response"]["status"] == "in_progress" and
                         event["response"]["output"] == [] and event["response"]["usage"] is None, block)
            continue
        if what in ("response.completed", "response.incomplete", "response.failed"):
            response = event["response"]
            continue
        if what == "response.output_item.added":
            checks.check(all(item["done"] for item in items) and event["output_index"] == len(items) and event["item"]["status"] == "in_progress", block)
            items.append({"begun": event["item"], "steps": [], "text": "", "done": None})
            continue
        item = items[-1]
        checks.check(event["output_index"] == len(items) - 1 and event.get("item_id", item["begun"]["id"]) == item["begun"]["id"] and not item["done"], block)
        _, prefix = TEXTS[item["begun"]["type"]]
        if what == prefix + ".delta":
            checks.check(event["delta"] != "", block)
            item["text"] += event["delta"]
        elif what == "response.output_item.done":
            item["done"] = event["item"]
            checks.check({**item["begun"], "status": None}.keys() <= event["item"].keys() and text_of(event["item"]) == item["text"], f"{item} {block}")
        elif what == prefix + ".done":
            checks.check(next(event[key] for key in ("text", "arguments", "input") if key in event) == item["text"], block)
        item["steps"].append(what)
    for item in items:
        _, prefix = TEXTS[item["begun"]["type"]]
        steps = [step for i, step in enumerate(item["steps"]) if not i or step != item["steps"][i - 1]]
        around = ["response.content_part.added", "response.content_part.done"] if item["begun"]["type"] in ("message", "reasoning") else []
        expected = [*around[:1], *([prefix + ".delta"] if item["text"] else []), prefix + ".done", *around[1:], "response.output_item.done"]
        checks.check(steps == expected, f"{item['begun']}: {steps} is not {expected}")
    checks.check(response and [item["done"] for item in items] == response["output"], f"{items} {response}")
    return response


def asked(server, body):
    """The response of a request, which a stream has, too. The tokens are those that were counted."""
    count = server.post(RESPONSES + "/input_tokens", **body)["input_tokens"]
    whole = server.post(RESPONSES, **{**body, "stream": False})
    status, headers, text = server.send("POST", RESPONSES, {**body, "stream": True})
    checks.check(status == 200 and headers["Content-Type"].startswith("text/event-stream"), f"{status} {text}")
    stream = streamed(text)
    parts = [([plain(item) | {"status": item["status"]} for item in each["output"]], each["status"], each["usage"]["input_tokens"]) for each in (whole, stream)]
    checks.check(parts[0] == parts[1] and parts[0][2] == count, f"{parts} {count}")
    return whole


def replays(server):
    """Requests of the structure that agents send, with texts of our own."""
    for row in ROWS:
        body, expected = row["body"], row["answer"]
        if "error" in expected:
            status, _, text = server.send("POST", RESPONSES, body)
            error = json.loads(text)["error"]
            checks.check(status == 400 and error["message"] == expected["error"] and error["param"], f"{status} {text}")
            continue
        server.post("/script", pieces=list(pieces_of(expected)))
        response = asked(server, body)
        checks.check([plain(item) for item in response["output"]] == expected and response["store"] is False, f"{body}: {response['output']}")
        checks.check(response["status"] == ("incomplete" if body.get("max_output_tokens") else "completed"), f"{response}")
        sealed = [item for item in response["output"] if "encrypted_content" in item]
        checks.check(len(sealed) == len([item for item in expected if item["type"] == "reasoning"]), f"{sealed}")


def as_chat(body):
    """The same conversation as a chat has it, without reasoning, which templates drop from earlier turns."""
    messages = [{"role": "system", "content": body["instructions"]}]
    for item in body["input"]:
        match item["type"]:
            case "message" if item["role"] != "assistant":
                messages.append({"role": item["role"], "content": "".join(part["text"] for part in item["content"])})
            case "message":
                messages.append({"role": "assistant", "content": text_of(item), "tool_calls": []})
            case "function_call" | "custom_tool_call":
                name = "__".join(filter(None, (item.get("namespace"), item["name"])))
                arguments = item["arguments"] if "arguments" in item else {"input": item["input"]}
                messages[-1]["tool_calls"].append({"id": item["call_id"], "type": "function", "function": {"name": name, "arguments": arguments}})
            case "function_call_output" | "custom_tool_call_output":
                output = item["output"] if isinstance(item["output"], str) else "".join(part["text"] for part in item["output"])
                messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": output})
            case "reasoning" if "content" in item:
                messages.append({"role": "assistant", "content": "", "reasoning_content": text_of(item)})
    tools = []
    for tool in body["tools"]:
        nested = [{**each, "name": f"{tool['name']}__{each['name']}"} for each in tool["tools"]] if tool["type"] == "namespace" else [tool]
        for each in nested:
            text = {"type": "string"}
            if each.get("format"):
                text["description"] = f"A text of this grammar ({each['format']['syntax']}):\n{each['format']['definition']}"
            custom = {"type": "object", "properties": {"input": text}, "required": ["input"]}
            if each["type"] in ("function", "custom"):
                tools.append({"type": "function", "function": {"name": each["name"], "description": each["description"], "parameters": each.get("parameters", custom)}})
    return {"messages": messages, "tools": tools, "reasoning_effort": body["reasoning"]["effort"]}


def turns(server):
    """The next turn of an agent reads what is new alone. A chat has the same prompts."""
    first, second = (row["body"] for row in ROWS[:2])
    first = {**first, "stream": False, "cache_salt": "turns"}
    server.post("/script", pieces=list(pieces_of(ROWS[0]["answer"])))
    before = server.post(RESPONSES, **first)
    checks.check(before["usage"]["input_tokens_details"]["cached_tokens"] == 0 and before["usage"]["input_tokens"] > 3000, f"{before['usage']}")
    # What came back, with its ids and its sealed reasoning; agents leave out what only users see.
    output = [{key: value for key, value in item.items() if key != "content" or item["type"] != "reasoning"} for item in before["output"]]
    calls = [item["call_id"] for item in output if "call_id" in item]
    results = [item for item in second["input"] if "call_id" in item and "output" in item]
    sent = {**first, "input": first["input"] + output + [{**result, "call_id": call} for call, result in zip(calls, results)]}
    after = server.post(RESPONSES, **sent)
    cached = after["usage"]["input_tokens_details"]["cached_tokens"]
    checks.check(cached >= 0.95 * before["usage"]["input_tokens"], f"{cached} of {before['usage']['input_tokens']} tokens were cached")
    # The reasoning of the answer stands in the prompt: without it, the prompt is another.
    without = server.post(RESPONSES, **{**sent, "input": [item for item in sent["input"] if item["type"] != "reasoning"]})
    checks.check(without["usage"]["input_tokens"] < after["usage"]["input_tokens"], f"{without['usage']} {after['usage']}")
    chat = as_chat({**sent, "input": [item for item in sent["input"] if item["type"] != "reasoning"]})
    usage = server.post(CHAT, **chat, cache_salt="turns", max_tokens=1)["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    checks.check(usage["prompt_tokens"] == without["usage"]["input_tokens"] and cached >= usage["prompt_tokens"] - PAGE, f"{usage} {without['usage']}")


def ends(server):
    """A cut or broken call, text or reasoning is incomplete, and goes back as it came."""
    body = {**ROWS[0]["body"], "stream": False}
    server.post("/script", pieces=list(pieces_of(ROWS[0]["answer"])))
    seen = set()
    for most in range(1, 130, 8):
        response = asked(server, {**body, "max_output_tokens": most})
        last = response["output"][-1] if response["output"] else {"status": "incomplete", "type": "nothing"}
        seen.add(last["type"])
        if response["status"] == "incomplete":
            checks.check(response["incomplete_details"] == {"reason": "max_output_tokens"} and (last["type"] != "message" or last["status"] == "incomplete"), f"{response}")
        checks.check(all(item["status"] == "completed" for item in response["output"][:-1]), f"{most}: {response['output']}")
        outputs = [{"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "x"} for item in response["output"] if "call_id" in item]
        server.post(RESPONSES, **{**body, "input": body["input"] + response["output"] + outputs, "max_output_tokens": 1})
    checks.check(seen >= {"reasoning", "message", "function_call", "custom_tool_call"}, f"{seen}")
    # Without a grammar, which is a promise, calls are as the model writes them.
    body = {**body, "tools": [{key: value for key, value in tool.items() if key != "format"} for tool in body["tools"]]}
    server.post("/script", pieces=["<tool_call>", '\n{"name": "exec_command", "arguments": {"cmd": ', '}}\n', "</tool_call>"])
    broken = asked(server, body)
    checks.check((broken["status"], broken["output"][0]["status"]) == ("completed", "incomplete"), f"{broken['output']}")
    # Text behind a call is an item of its own, and a part of the same message in the next turn.
    server.post("/script", pieces=["One.\n", "<tool_call>", '\n{"name": "exec_command", "arguments": {}}\n', "</tool_call>", "\nTwo."])
    behind = asked(server, body)
    checks.check([item["type"] for item in behind["output"]] == ["message", "function_call", "message"], f"{behind['output']}")


def probabilities(server):
    server.post("/script", pieces=["Hi", " there"])
    body = {"input": "Hi", "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    part = asked(server, body)["output"][0]["content"][0]
    checks.check("".join(token["token"] for token in part["logprobs"]) == "Hi there" and all(len(token["top_logprobs"]) == 2 for token in part["logprobs"]), f"{part}")
    checks.check(asked(server, {"input": "Hi"})["output"][0]["content"][0]["logprobs"] == [], "logprobs without being asked")


def failures(server):
    """Errors before the stream have a status, and OpenAI's form."""
    for body, status, param in (({"input": "a " * 9000, "stream": True}, 400, "input"), ({"input": "Hi", "model": "other"}, 404, "model")):
        got, _, text = server.send("POST", RESPONSES, body)
        checks.check(got == status and json.loads(text)["error"]["param"] == param, f"{got} {text[:300]}")
    got, headers, _ = server.send("GET", RESPONSES)
    checks.check(got == 405 and "POST" in headers["Allow"], f"{got}")


def notes():
    """What has no effect is a line of the log, once."""
    server = Server(stories)
    server.post(RESPONSES, input=[{"type": "of_next_year"}, {"type": "of_next_year"}, {"role": "user", "content": "Hi"}], of_next_year=1, max_output_tokens=3, client_metadata={},
                tools=[{"type": "web_search"}])
    log = server.stop()[1]
    for line in ('input[] of type "of_next_year" is left out', "unknown parameter of_next_year has no effect", 'tools[] of type "web_search" is left out'):
        checks.check(log.count(line) == 1, f"{line}: {log}")
    checks.check("client_metadata" not in log, log)


template = TEMPLATES / "Qwen-Qwen3-0.6B.jinja"
model = qwen2_model(TEMPLATES.with_name("qwen2"), WORK, template, 8192)
server = Server(model, program=["scripted-server", model, template])
for row in ROWS:
    row["body"]["model"] = model.stem
replays(server)
turns(server)
ends(server)
probabilities(server)
failures(server)
check_client(checks, "OpenAI", CLIENT, packages, HERE / "client_responses.py", server.address, model.stem)
server.stop()
notes()
checks.finish()
