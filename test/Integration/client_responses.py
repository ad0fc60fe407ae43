"""Talks to a scripted server with OpenAI's client for Python: responses.py calls this.

  client_responses.py ADDRESS MODEL
"""
import json
import sys
import urllib.request

import openai
from pydantic import BaseModel

address, model = sys.argv[1:]
client = openai.OpenAI(base_url=address + "/v1", api_key="none", max_retries=0)
tools = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"where": {"type": "string"}}}, "strict": False},
         {"type": "namespace", "name": "maps", "description": "Maps", "tools": [{"type": "function", "name": "find"}]},
         {"type": "custom", "name": "patch"}, {"type": "web_search"}]
TEXT = '*** Begin\n+"a"\n'


def expect(name, got, expected):
    if got != expected:
        sys.exit(f"{name}: {got!r} is not {expected!r}")


def script(*pieces):
    urllib.request.urlopen(urllib.request.Request(address + "/script", json.dumps({"pieces": pieces}).encode(), {"Content-Type": "application/json"})).close()


def call(name, arguments):
    return ["\n", "<tool_call>", f'\n{{"name": "{name}", "arguments": ', json.dumps(arguments), "}\n", "</tool_call>"]


def plain(response):
    return [item.model_dump(exclude={"id", "call_id", "parsed_arguments"}, exclude_none=True) for item in response.output]


script("<think>", "\nHm.\n", "</think>", "\n\n", "I look.", *call("look", {"where": "x"}), *call("maps__find", {}), *call("patch", {"input": TEXT}))
items = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
ask = {"model": model, "input": items, "tools": tools, "include": ["reasoning.encrypted_content"], "store": True, "metadata": {"a": "b"}}
whole = client.responses.create(**ask)
expect("types", [item.type for item in whole.output], ["reasoning", "message", "function_call", "function_call", "custom_tool_call"])
reasoning, message, look, find, patch = whole.output
expect("texts", (reasoning.content[0].text, whole.output_text, look.arguments, find.namespace, find.name, patch.input),
       ("Hm.", "I look.", '{"where": "x"}', "maps", "find", TEXT))
expect("the response", (whole.status, whole.store, whole.metadata, whole.usage.output_tokens_details.reasoning_tokens > 0, whole.previous_response_id),
       ("completed", False, {"a": "b"}, True, None))
with client.responses.stream(**ask) as stream:
    events = list(stream)
    final = stream.get_final_response()
expect("a stream", (plain(final), final.output_text), (plain(whole), "I look."))
expect("numbers", [event.sequence_number for event in events], list(range(len(events))))
deltas = "".join(event.delta for event in events if event.type == "response.custom_tool_call_input.delta")
expect("a text in pieces", deltas, TEXT)
counted = client.responses.input_tokens.count(model=model, input=items, tools=tools).input_tokens
expect("a count", counted, whole.usage.input_tokens)

# The next turn, with what came back as the client has it.
script("Nothing is there.")
results = [{"type": f"{item.type}_output", "call_id": item.call_id, "output": "nothing"} for item in final.output[2:]]
answer = client.responses.create(**{**ask, "input": [*items, *final.output, *results]})
expect("the next turn", (answer.output_text, answer.usage.input_tokens_details.cached_tokens >= counted - 64), ("Nothing is there.", True))


class City(BaseModel):
    name: str


script('{"name": "Oz"}')
expect("a document", client.responses.parse(model=model, input="Where?", text_format=City).output_parsed, City(name="Oz"))
script("Yes")
expect("a probe", client.responses.create(model=model, input="", max_output_tokens=1).output_text, "Yes")
with client.responses.stream(model=model, input="Hi", max_output_tokens=1) as stream:
    expect("a cut answer", [event.type for event in stream][-1], "response.incomplete")
for change, error, param in (({"previous_response_id": "x"}, openai.BadRequestError, "previous_response_id"), ({"model": "other"}, openai.NotFoundError, "model"),
                             ({"tool_choice": {"type": "web_search_preview"}}, openai.BadRequestError, "tool_choice")):
    for stream in (False, True):
        try:
            client.responses.create(**{**ask, **change}, stream=stream)
        except error as raised:
            expect("an error", raised.param, param)
        else:
            sys.exit(f"{change}: no error")
