"""Talks to a scripted server with Anthropic's client for Python: messages.py calls this.

  client_messages.py ADDRESS MODEL
"""
import json
import sys
import urllib.request

import anthropic

address, model = sys.argv[1:]
client = anthropic.Anthropic(base_url=address, api_key="secret", max_retries=0)
options = {"model": model, "max_tokens": 200}
tools = [{"name": "look", "description": "Look", "input_schema": {"type": "object", "properties": {"where": {"type": "string"}}}}]
messages = [{"role": "user", "content": "Hi " * 60}]
CALL = ["\n", "<tool_call>", '\n{"name": "look", "arguments": {"where": "x", ', '"count": 2}}\n', "</tool_call>"]


def expect(name, got, expected):
    if got != expected:
        sys.exit(f"{name}: {got!r} is not {expected!r}")


def script(*pieces):
    urllib.request.urlopen(urllib.request.Request(address + "/script", json.dumps({"pieces": pieces}).encode(),
                                                  {"x-api-key": "secret", "Content-Type": "application/json"})).close()


def contents(message):
    return [block.model_dump(exclude={"id", "parsed_output"}, exclude_none=True) for block in message.content]


listed = client.models.list()
expect("models", ([each.id for each in listed], listed.has_more, client.models.retrieve(model).max_input_tokens), ([model], False, 8192))

script("<think>", "\nHm.\n", "</think>", "\n\n", "I look.", *CALL)
ask = {**options, "messages": messages, "tools": tools, "thinking": {"type": "adaptive"}}
count = client.messages.count_tokens(**{key: value for key, value in ask.items() if key != "max_tokens"}).input_tokens
whole = client.messages.create(**ask)
expect("blocks", [block.type for block in whole.content], ["thinking", "text", "tool_use"])
expect("a call", (whole.stop_reason, whole.content[2].name, whole.content[2].input), ("tool_use", "look", {"where": "x", "count": 2}))
expect("a count", whole.usage.input_tokens + whole.usage.cache_read_input_tokens, count)
with client.messages.stream(**ask) as stream:
    kinds = [event.type for event in stream]
    streamed = stream.get_final_message()
expect("a stream", (contents(streamed), streamed.stop_reason), (contents(whole), "tool_use"))
expect("the ends of a stream", (kinds[0], kinds[-1], kinds.count("content_block_start"), kinds.count("content_block_stop")), ("message_start", "message_stop", 3, 3))
expect("cached tokens", streamed.usage.cache_read_input_tokens >= count - 64, True)
with client.beta.messages.stream(**ask, betas=["interleaved-thinking-2025-05-14"]) as stream:
    expect("a stream of a beta", stream.get_final_message().stop_reason, "tool_use")

# The next turn, with what came back.
messages += [{"role": "assistant", "content": streamed.content},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": streamed.content[2].id, "content": "nothing", "is_error": True}]}]
script("Nothing is there.")
answer = client.messages.create(**{**ask, "messages": messages})
expect("the next turn", (answer.content[-1].text, answer.stop_reason), ("Nothing is there.", "end_turn"))
expect("cached tokens of the next turn", answer.usage.cache_read_input_tokens >= count - 64, True)

other = client.with_options(api_key="other")
for error, kind, asks, change in ((anthropic.NotFoundError, "not_found_error", client, {"model": "other"}),
                                  (anthropic.BadRequestError, "invalid_request_error", client, {"max_tokens": -1}),
                                  (anthropic.AuthenticationError, "authentication_error", other, {})):
    for stream in (False, True):
        try:
            asks.messages.create(**{**ask, **change}, stream=stream)
        except error as raised:
            expect("an error", (raised.body["type"], raised.body["error"]["type"]), ("error", kind))
        else:
            sys.exit(f"{change}: no error")
