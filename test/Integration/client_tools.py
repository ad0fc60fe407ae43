"""One loop of an agent with OpenAI's client for Python: tools.py calls this.

  client_tools.py ADDRESS
"""
import json
import sys

from openai import OpenAI

client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"where": {"type": "string"}}}}}]
messages = [{"role": "user", "content": "Hi"}]
choice = client.chat.completions.create(model="", messages=messages, tools=tools).choices[0]
assert choice.finish_reason == "tool_calls", choice
call = choice.message.tool_calls[0]
assert call.type == "function" and call.function.name == "look" and json.loads(call.function.arguments)["count"] == 2, call
with client.chat.completions.stream(model="", messages=messages, tools=tools) as stream:
    for event in stream:
        pass
    final = stream.get_final_completion().choices[0]
assert final.finish_reason == "tool_calls" and final.message.tool_calls[0].function.arguments == call.function.arguments, final
# The message of a stream has parsed, and its calls parsed_arguments.
for message in (choice.message, final.message, choice.message.model_dump(), final.message.model_dump()):
    called = message["tool_calls"][0]["id"] if isinstance(message, dict) else message.tool_calls[0].id
    messages += [message, {"role": "tool", "tool_call_id": called, "content": "nothing"}]
again = client.chat.completions.create(model="", messages=messages, tools=tools).choices[0]
assert again.message.tool_calls[0].id != call.id, again
