"""No request is answered with a status of 500 by its content: bodies of clients, and of schemas, with values that are exchanged, left out or nested.

  bodies.py FOLDER REQUESTS TEMPLATE WORKDIR      FOLDER is models/stories; REQUESTS has a line with a body of each client

Prints how many answers have each status. QWEN_TEST_FULL: 10,000 requests in place of 300.
"""
import collections
import concurrent.futures
import copy
import json
import os
import pathlib
import random
import sys

from checks import Checks
from marked_model import marked_model
from server import Server

FOLDER, REQUESTS, TEMPLATE, WORK = (pathlib.Path(a) for a in sys.argv[1:])
COUNT = 10000 if "QWEN_TEST_FULL" in os.environ else 300
CHAT, TEXT, FILL = "/v1/chat/completions", "/v1/completions", "/infill"
checks = Checks()

VALUES = [None, True, False, 0, 1, -1, 0.5, 1e300, -1e-300, 2**63, 2**64 - 1, 10**30, "", "a", "$", "\\", "\u0000", "\ud7ff", "^[ab]$", "(", ".*", "#/$defs/a", "#", [], {}, [{}],
          {"a": {}}, {"type": "object"}, {"not": {}}, {"$ref": "#"}, {"pattern": "^a$"}, {"enum": [1, "a", None]}, {"multipleOf": 7, "minimum": 100},
          ["a", "a"], "integer", "string", "required", {"patternProperties": {"^a$": {}}, "additionalProperties": False}, {"minProperties": 2}, {"maxItems": 0, "minItems": 1}]
KEYS = ["type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "pattern", "format", "minimum", "maximum", "multipleOf",
        "additionalProperties", "patternProperties", "minLength", "maxItems", "minProperties", "propertyNames", "guided_json", "guided_regex", "guided_choice", "grammar",
        "response_format", "tools", "tool_choice", "stop", "bad_words", "no_repeat_ngram_size", "n", "logprobs", "stream", "temperature"]
SCHEMA = {"type": "object", "required": ["a"], "additionalProperties": False, "$defs": {"a": {"type": "integer", "multipleOf": 5}},
          "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"type": "array", "items": {"anyOf": [{"type": "string", "pattern": "^x"}, {"enum": [1, None]}]}, "maxItems": 3},
                         "c": {"type": "number", "minimum": 0, "maximum": 9.5}, "d": {"type": "string", "format": "date", "minLength": 2}}}
HI = [{"role": "user", "content": "Hi"}]


def bodies():
    for line in REQUESTS.read_text().splitlines():
        row = json.loads(line)
        yield row.get("path", CHAT), {key: value for key, value in row["body"].items() if key != "model"}
    for path, prompt in ((CHAT, {"messages": HI}), (TEXT, {"prompt": "The"}), (FILL, {"input_prefix": "a", "input_suffix": "b"})):
        yield path, {**prompt, "guided_json": SCHEMA}
        yield path, {**prompt, "structured_outputs": {"regex": "[a-f]{3}(x|y)+"}}
        yield path, {**prompt, "grammar": 'start: item+\nitem: "a" | "(" item ")"'}
        yield path, {**prompt, "guided_choice": ["yes", "no"]}
    yield CHAT, {"messages": HI, "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}], "tool_choice": "required"}


def places(value, found):
    """All members and elements, as the value that has them and its key."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found.append((value, key))
        places(value[key], found)
    return found


def mutated(body, draw):
    body = copy.deepcopy(body)
    for _ in range(draw.randint(1, 4)):
        found = places(body, [])
        where, key = draw.choice(found)
        what = draw.randrange(6)
        if what == 0:
            del where[key]
        elif what == 1:
            where[key] = copy.deepcopy(draw.choice(VALUES))
        elif what == 2:
            other, at = draw.choice(found)
            where[key] = copy.deepcopy(other[at])
        elif what == 3:
            for _ in range(draw.choice((1, 3, 70))):
                where[key] = draw.choice(([where[key]], {draw.choice(KEYS): where[key]}))
        elif isinstance(where, dict):
            where[draw.choice(KEYS)] = copy.deepcopy(draw.choice((where[key], draw.choice(VALUES))))
        else:
            where.append(copy.deepcopy(where[key]))
        if not isinstance(body, dict) or not body:
            break
    return {**body, "max_tokens": 12}


server = Server(marked_model(FOLDER, WORK, TEMPLATE))
bases = list(bodies())
counts = collections.Counter()


def send(seed):
    draw = random.Random(seed)
    path, body = draw.choice(bases)
    body = mutated(body, draw)
    status, _, text = server.send("POST", path, body)
    counts[status] += 1
    # Events tell an error after their status.
    failed = status >= 500 or '"server_error"' in text or '"api_error"' in text
    checks.check(not failed, f"seed {seed}: {path} {json.dumps(body)}: {status} {text[-500:]}")


with concurrent.futures.ThreadPoolExecutor(8) as pool:
    list(pool.map(send, range(COUNT)))
server.stop()
print(dict(counts))
checks.check(counts[200] > COUNT / 50 and counts[400] > COUNT / 10, f"{counts}")
checks.finish()
