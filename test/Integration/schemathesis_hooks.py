"""What schemathesis cannot know of /openapi.json: how many tokens a text has, which settings need each other, and which texts are JSON or grammars (clients.py)."""
import json

import schemathesis

# Settings of beams, and their values without a search.
WITHOUT_BEAMS = {"num_beams": 1, "num_beam_groups": 1, "diversity_penalty": 0, "length_penalty": 1, "early_stopping": False}
GRAMMARS = ("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "json_schema", "grammar")


@schemathesis.hook
def filter_body(context, body):
    """Leaves out requests that may be longer than the context."""
    return not isinstance(body, (dict, list)) or len(json.dumps(body)) < 1000


def has_text_arguments(message):
    """Whether a message has a call whose arguments are a text, which must be that of an object."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return any(isinstance(call, dict) and isinstance(call.get("function"), dict) and isinstance(call["function"].get("arguments"), str)
               for call in (calls if isinstance(calls, list) else ()))


def has_older_tools(body):
    """Whether a request has functions that may not stand beside its tools, or a choice of none (ToolParametersTest)."""
    given = {name for name, value in body.items() if value is not None}
    return bool(given & {"functions", "function_call"}) and (not body.get("functions") or bool(given & {"tools", "tool_choice"}))


@schemathesis.hook
def filter_case(context, case):
    """Leaves out searches with beams, whose settings errors_server.py tries, arguments of calls that are texts, and grammars (grammars.py)."""
    body = case.body
    if not isinstance(body, dict):
        return True
    messages = body.get("messages")
    return all(body.get(name) in (None, value) for name, value in WITHOUT_BEAMS.items()) and \
        not any(body.get(name) is not None for name in GRAMMARS) and not has_older_tools(body) and \
        not any(has_text_arguments(message) for message in (messages if isinstance(messages, list) else ()))
