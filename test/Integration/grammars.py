"""Answers with a grammar over HTTP: what a model draws is a document of its schema, alone and under load; reasoning; refusals; requests of clients.

  grammars.py FOLDER MODEL TEMPLATES PACKAGES WORKDIR      MODEL is FOLDER (models/stories), compiled

PyPI's jsonschema says whether a document is one of its schema.
"""
import concurrent.futures
import json
import pathlib
import re
import sys
import time

from checks import Checks
from marked_model import marked_model, qwen2_model
from packages import import_from
from server import Server

FOLDER, stories, TEMPLATES, packages, WORK = (pathlib.Path(a) for a in sys.argv[1:])
TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]
checks = Checks()

WORD = {"type": "string", "maxLength": 12}
SCHEMAS = [
    {"type": "object", "properties": {"name": WORD, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "tags": {"type": "array", "items": WORD, "maxItems": 3}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "object", "properties": {"kind": {"const": "tree"}, "root": {"$ref": "#/$defs/node"}}, "required": ["kind", "root"], "additionalProperties": False,
     "$defs": {"node": {"type": "object", "properties": {"value": {"type": "number", "minimum": -5, "maximum": 5}, "next": {"anyOf": [
         {"type": "null"}, {"type": "object", "properties": {"value": {"type": "boolean"}}, "required": ["value"], "additionalProperties": False}]}},
         "required": ["value", "next"], "additionalProperties": False}}},
    {"type": "array", "minItems": 2, "maxItems": 4, "items": {"enum": ["red", "green", 1, None, {"a": []}]}},
    {"type": "object", "properties": {"when": {"type": "string", "format": "date-time"}, "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,4}$"},
                                      "price": {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 1000}},
     "required": ["when", "id", "price"], "additionalProperties": False},
    # Numbers that no double has.
    {"type": "object", "properties": {"id": {"$ref": "#/$defs/id"}, "parents": {"type": "array", "items": {"$ref": "#/$defs/id"}, "maxItems": 3}, "name": WORD},
     "required": ["id", "parents"], "additionalProperties": False, "$defs": {"id": {"type": "integer", "enum": [9007199254740993, 18446744073709551617, 7]}}},
]


PARAMETERS = {
    "look": {"type": "object", "required": ["where", "count"], "additionalProperties": False, "$defs": {"kind": {"enum": ["a", "b\"", "c\nd"]}},
             "properties": {"where": {"type": "string", "maxLength": 8}, "count": {"type": "integer", "minimum": 0, "maximum": 150},
                            "kind": {"anyOf": [{"$ref": "#/$defs/kind"}, {"type": "null"}]}}},
    "note": {"type": "object", "required": ["words"], "additionalProperties": False,
             "properties": {"words": {"type": "array", "items": {"enum": ["red", 1, None]}, "maxItems": 3},
                            "deep": {"type": "object", "required": ["x"], "properties": {"x": {"type": "boolean"}}, "additionalProperties": False}}},
    "now": {"type": "object", "properties": {}, "additionalProperties": False}}


def documents(server, jsonschema):
    """Each seed draws another document of its schema, on one line."""
    bodies = [{"prompt": "Once upon a time", "seed": seed, "max_tokens": 300, "guided_json": schema} for schema in SCHEMAS for seed in range(12)]
    before = server.metric("qwen_grammar_seconds_total")
    server.post(TEXT, prompt="Once upon a time", max_tokens=3)
    checks.check(server.metric("qwen_grammar_seconds_total") == before, "an answer without a grammar takes time of grammars")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: server.post(TEXT, **body)["choices"][0], bodies))
    for body, choice in zip(bodies, answers):
        checks.check(choice["finish_reason"] == "stop" and "\n" not in choice["text"], f"{body}: {choice}")
        document = json.loads(choice["text"])
        if jsonschema:
            jsonschema.Draft202012Validator(body["guided_json"], format_checker=jsonschema.FormatChecker()).validate(document)
    texts = {choice["text"] for choice in answers}
    checks.check(len(texts) > len(bodies) / 2, f"{len(bodies)} answers have {len(texts)} texts")
    checks.check(server.metric("qwen_grammar_seconds_total") > before, "/metrics has no time of grammars")
    # The same alone, as a stream, and with logprobs, which are those of the raw logits.
    for body, choice in list(zip(bodies, answers))[::7]:
        checks.check(server.post(TEXT, **body)["choices"][0]["text"] == choice["text"], f"{body}: alone")
        status, _, events = server.send("POST", TEXT, {**body, "stream": True, "logprobs": 2})
        pieces = [json.loads(line[6:])["choices"][0] for line in events.split("\n\n") if line.startswith("data: {")]
        checks.check(status == 200 and "".join(piece["text"] for piece in pieces) == choice["text"], f"{body}: a stream has {events[:300]}")
        drawn = [p for piece in pieces for p in (piece["logprobs"] or {"token_logprobs": []})["token_logprobs"]]
        checks.check(all(p > -9999 for p in drawn) and len(drawn) > 4, f"{drawn}")


def forced(server):
    """A token that has no other choice is not drawn: the same tokens in fewer steps. Logprobs need a draw for each."""
    cases = [{"guided_json": schema, **more} for schema in (*SCHEMAS, PARAMETERS["look"])
             for more in ({}, {"max_tokens": 7}, {"max_tokens": 11}, {"temperature": 0}, {"stop": '"'}, {"stop": ["ge\": ", "nd\": \"t"]}, {"repetition_penalty": 1.2},
                          {"mirostat": 2}, {"n": 2})]
    steps = {}
    answers = {}
    for way, more in (("drawn", {"logprobs": 0}), ("forced", {}), ("streamed", {"stream": True})):
        before = server.metric("llamacpp:n_decode_total")
        answers[way] = []
        for seed, case in enumerate(cases):
            status, _, text = server.send("POST", TEXT, {"prompt": "Once upon a time", "seed": seed, "max_tokens": 60, "return_token_ids": True, **case, **more})
            checks.check(status == 200, f"{case}: {text}")
            lines = [line[6:] for line in text.split("\n\n") if line.startswith("data: {")] if way == "streamed" else [text]
            joined = {}
            for choice in (choice for line in lines for choice in json.loads(line)["choices"]):
                to = joined.setdefault(choice["index"], {"text": "", "token_ids": [], "finish_reason": None})
                for name in ("text", "token_ids"):
                    to[name] += choice[name]
                to["finish_reason"] = choice["finish_reason"] or to["finish_reason"]
            answers[way].append(joined)
        steps[way] = server.metric("llamacpp:n_decode_total") - before
    for case, *each in zip(cases, *answers.values()):
        checks.check(each[0] == each[1] == each[2], f"{case}: {each}")
    checks.check(steps["forced"] < steps["drawn"], f"{steps}")


def other_forms(server):
    for body, pattern in (({"structured_outputs": {"regex": "[a-f]{3,5}-[0-9]+!"}}, "[a-f]{3,5}-[0-9]+!"),
                          ({"guided_choice": ["a \"b\"", "c\\d", "東"]}, "a \"b\"|c\\\\d|東"),
                          ({"grammar": "start: (\"tick\" | \"tock\") (\", \" (\"tick\" | \"tock\")){2}"}, "(tick|tock)(, (tick|tock)){2}"),
                          ({"grammar": 'root ::= word (", " word){2}\nword ::= "tick" | "tock"'}, "(tick|tock)(, (tick|tock)){2}"),
                          ({"response_format": {"type": "json_object"}}, r"\{.*")):
        for seed in range(5):
            for path, prompt in ((TEXT, {"prompt": "The"}), (CHAT, {"messages": HI})):
                choice = server.post(path, seed=seed, max_tokens=40, n=2, **prompt, **body)["choices"][seed % 2]
                text = choice["message"]["content"] if path == CHAT else choice["text"]
                checks.check(re.fullmatch(pattern, text, re.DOTALL) or choice["finish_reason"] == "length", f"{body}: {choice}")
    # What forbids nothing changes no token.
    for seed in range(3):
        body = {"prompt": "Once upon a time", "seed": seed, "max_tokens": 60, "return_token_ids": True, "logprobs": 1}
        free, kept = (server.post(TEXT, **body, **more)["choices"][0] for more in ({}, {"guided_regex": "(?s:.*)"}))
        checks.check(free == kept, f"{free} {kept}")
    # More tokens than there are, a stop string, and an end that is held back.
    cut = server.post(TEXT, prompt="The", guided_json=SCHEMAS[0], max_tokens=3)["choices"][0]
    checks.check(cut["finish_reason"] == "length" and cut["text"].startswith("{"), f"{cut}")
    stopped = server.post(TEXT, prompt="The", guided_json=SCHEMAS[0], max_tokens=99, stop='"age"')["choices"][0]
    checks.check(stopped["stop_reason"] == '"age"', f"{stopped}")
    done = server.post(TEXT, prompt="The", guided_choice=["done"], ignore_eos=True, min_tokens=9)
    checks.check(done["choices"][0]["text"] == "done" and done["choices"][0]["finish_reason"] == "stop", f"{done}")


def refusals(server):
    schema = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMAS[0]}}}
    for body, param, words in (
            ({**schema, "num_beams": 2}, "response_format.json_schema.schema", ["num_beams"]),
            ({**schema, "guided_regex": "a"}, "response_format.json_schema.schema", ["guided_regex"]),
            ({"guided_json": {"not": {}}}, "guided_json", ['unimplemented keys: ["not"]']),
            ({"guided_json": {"type": "integer", "multipleOf": 15485863}}, "guided_json", ["multipleOf"]),
            ({"guided_json": {"patternProperties": {"^a": {"const": 9007199254740993}}}}, "guided_json", ["const 9007199254740993", "/patternProperties/^a"]),
            ({"guided_json": {"$ref": "https://example.com/s.json"}}, "guided_json", ["https://example.com/s.json"]),
            ({"guided_regex": "("}, "guided_regex", ["regex"]),
            ({**schema, "bad_words": ["a"]}, "response_format.json_schema.schema", ["bad_words"]),
            ({"guided_regex": "a+", "no_repeat_ngram_size": 2}, "guided_regex", ["no_repeat_ngram_size"]),
            ({"grammar": 'root ::= "a" <think>'}, "grammar", ["line 1 of the GBNF", "<think>"])):
        for stream in (False, True):
            status, _, text = server.send("POST", CHAT, {"messages": HI, "stream": stream, **body})
            error = json.loads(text).get("error", {})
            checks.check(status == 400 and error["param"] == param and all(word in error["message"] for word in words), f"{body}: {status} {text}")
    # The next request is answered.
    checks.check(server.post(TEXT, prompt="The", guided_choice=["x"])["choices"][0]["text"] == "x", "no answer after an error")


def others():
    """Grammars that take long delay no other request, and end with their request and with the server."""
    server = Server(stories)
    # A short text whose patterns are compared in pairs.
    body = json.dumps({"prompt": "The", "max_tokens": 1, "guided_json": {"patternProperties": {f"^k{i}_": {} for i in range(105)}}}).encode()
    server.post(TEXT, prompt="The", max_tokens=1, guided_choice=["x"])

    def leave():
        connection = server.connect()
        connection.request("POST", TEXT, body, {"Content-Type": "application/json"})
        return connection
    connections = [leave() for _ in range(30)]
    times = []
    for _ in range(20):
        start = time.monotonic()
        checks.check(server.send("GET", "/livez")[0] == 200, "/livez")
        server.post(TEXT, prompt="The", max_tokens=1)
        times.append(time.monotonic() - start)
    checks.check(max(times) < 2, f"beside grammars, requests take {times} s")
    for connection in connections[8:]:
        connection.close()
    checks.check(all(connection.getresponse().status == 200 for connection in connections[:8]), "answers with a large grammar")
    connections = [leave() for _ in range(30)]
    start = time.monotonic()
    server.stop()
    checks.check(time.monotonic() - start < 40, f"a server with grammars takes {time.monotonic() - start} s to end")


def beside_tools():
    """Tools that the answer may call exclude a grammar. Those of their calls need marks that are tokens."""
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
    server = Server(stories, program=["scripted-server", stories, TEMPLATES / "Qwen-Qwen3-0.6B.jinja"])
    body = {"messages": HI, "tools": [tool], "guided_choice": ["Yes"]}
    status, _, text = server.send("POST", CHAT, body)
    checks.check(status == 400 and "guided_choice excludes tools" in text, f"{status} {text}")
    status, _, text = server.send("POST", CHAT, {"messages": HI, "tools": [tool], "tool_choice": "required"})
    checks.check(status == 400 and "a model with the tokens" in text, f"{status} {text}")
    # Its marks are texts.
    status, _, text = server.send("POST", CHAT, {**body, "tool_choice": "none"})
    checks.check(status == 400 and "needs a model with the tokens <think> and </think>" in text, f"{status} {text}")
    server.stop()


def thoughts():
    """The grammar begins behind the reasoning."""
    model = marked_model(FOLDER, WORK)
    server = Server(model, program=["scripted-server", model, TEMPLATES / "Qwen-Qwen3-0.6B.jinja"])

    def answer(*pieces, **body):
        server.post("/script", pieces=pieces)
        status, _, text = server.send("POST", CHAT, {"messages": HI, "guided_json": SCHEMAS[2], **body})
        return json.loads(text)["choices"][0]["message"] if status == 200 else text
    document = '["red", 1]'
    for pieces, reasoning in ((("<think>", "\nHm", " {.\n", "</think>", "\n\n", document), "Hm {."), (("<think>", "</think>", document), None), ((document,), None)):
        message = answer(*pieces)
        checks.check(isinstance(message, dict) and message["content"] == document and message.get("reasoning") == reasoning, f"{pieces}: {message}")
    for pieces in (("<think>", "Hm", "</think>", "Yes"), ("Yes",), ("<think>", "Hm", "</think>", "<think>"), ("[", "<think>")):
        checks.check("doesn't satisfy the grammar" in answer(*pieces), f"{pieces}: {answer(*pieces)}")
    whole = answer("<think>", "Hm", "</think>", "\n\n", document, reasoning_format="none")
    checks.check(whole["content"] == f"<think>Hm</think>\n\n{document}", f"{whole}")
    server.stop()
    # Drawn tokens: the reasoning ends by its budget.
    server = Server(model)
    opening = server.post("/tokenize", prompt="<think>")["tokens"][0]
    for seed in range(4):
        choice = server.post(CHAT, messages=HI, seed=seed, guided_json=SCHEMAS[2], thinking_token_budget=5, logit_bias={opening: 100})["choices"][0]
        checks.check(choice["message"]["reasoning"] and isinstance(json.loads(choice["message"]["content"]), list), f"{choice}")
        # A request that is not to think opens no reasoning, whatever the chat template makes of it.
        for off in ({"enable_thinking": False}, {"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}):
            choice = server.post(CHAT, messages=HI, seed=seed, guided_json=SCHEMAS[2], logit_bias={opening: 100}, **off)["choices"][0]
            checks.check("reasoning" not in choice["message"] and isinstance(json.loads(choice["message"]["content"]), list), f"{off}: {choice}")
    server.stop()


def function(name, parameters, **more):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def tools(strict):
    return [function(name, parameters, strict=strict) for name, parameters in PARAMETERS.items()]


def calls_of(choice):
    """Names and arguments, and whether the last call is whole."""
    calls = [call["function"] for call in choice["message"].get("tool_calls", [])]
    return [(call["name"], call["arguments"]) for call in calls], choice["finish_reason"] == "tool_calls"


def check_calls(body, choice, jsonschema):
    calls, is_whole = calls_of(choice)
    checks.check(is_whole or choice["finish_reason"] == "length", f"{body}: {choice}")
    for i, (name, arguments) in enumerate(calls):
        checks.check(name in PARAMETERS, f"{body}: the answer calls {name}")
        if is_whole or i + 1 < len(calls):
            document = json.loads(arguments)
            if jsonschema:
                jsonschema.Draft202012Validator(PARAMETERS[name]).validate(document)
    return calls, is_whole


def streamed(text):
    """The calls and the content of a stream."""
    calls, content = [], ""
    for line in text.split("\n\n"):
        for choice in json.loads(line[6:])["choices"] if line.startswith("data: {") else ():
            content += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls", []):
                if "id" in call:
                    calls.append((call["function"]["name"], ""))
                calls[-1] = (calls[-1][0], calls[-1][1] + call["function"]["arguments"])
    return calls, content


def message_of(calls, content):
    """The message that a client makes of a stream."""
    called = [{"index": i, "id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}} for i, (name, arguments) in enumerate(calls)]
    return {"role": "assistant", "content": content or None, **({"tool_calls": called} if called else {})}


def goes_back(server, body, message):
    """What a client got is accepted in its next request, also with what clients add to it and where a call is cut."""
    parsed = json.loads(json.dumps(message))
    for call in parsed.get("tool_calls", []):
        call["function"] |= {"parsed_arguments": {}, "arguments": call["function"]["arguments"][:-1]}
        call |= {"provider_specific_fields": None, "extra_content": {}}
    parsed |= {"parsed": None, "provider_specific_fields": {"refusal": None}, "reasoning_details": [], "thinking_blocks": None, "function_call": None}
    for sent in (message, parsed):
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "x"} for call in sent.get("tool_calls", [])]
        status, _, text = server.send("POST", CHAT, {**body, "messages": [*body["messages"], sent, *results], "max_tokens": 1})
        checks.check(status == 200, f"{json.dumps(sent)} is refused in a history: {text}")


def replays():
    """Requests that clients sent, with texts of our own: test/Inputs/requests.jsonl has the client, the body and the answer of each. Those with
    a path have tests of their own. The server writes what
    the client expects, and promises allow it."""
    template = TEMPLATES / "Qwen-Qwen3-0.6B.jinja"
    model = qwen2_model(TEMPLATES.with_name("qwen2"), WORK, template)
    server = Server(model, program=["scripted-server", model, template])
    for line in (TEMPLATES.parents[1] / "requests.jsonl").read_text().splitlines():
        sent = json.loads(line)
        if "path" in sent:
            continue
        body, expected = {**sent["body"], "model": model.stem}, sent["answer"]
        call = '\n{"name": "%s", "arguments": %s}\n' % (expected.get("name"), expected.get("arguments"))
        server.post("/script", pieces=["<tool_call>", call, "</tool_call>"] if "name" in expected else [expected.get("content", "")])
        status, _, text = server.send("POST", CHAT, body)
        if "error" in expected:
            found = {"error": expected["error"] if status == 400 and expected["error"] in text else text}
        elif status != 200:
            found = text
        else:
            choice = {} if body.get("stream") else json.loads(text)["choices"][0]
            calls, content = streamed(text) if body.get("stream") else (calls_of(choice)[0], choice["message"]["content"])
            found = dict(zip(("name", "arguments"), *calls)) if calls else {"content": content}
            goes_back(server, body, choice.get("message", message_of(calls, content)))
        checks.check(found == expected, f"{sent['client']}: {json.dumps(body)}: {found} is not {expected}")
    server.stop()


def promised_texts(server, mark, think):
    """Drawn texts of custom tools are of their grammars, with and without a promised call."""
    lark = 'start: "*** Begin" LF line+ "*** End" LF?\nline: ("+" | "-") /[a-z \\\\"]{0,9}/ LF\n%import common.LF\n'
    formats = {"patch": ({"syntax": "lark", "definition": lark}, r'\*\*\* Begin\n([+-][a-z \\"]{0,9}\n)+\*\*\* End\n?'),
               "code": ({"syntax": "regex", "definition": r"[A-Z]{2}\n[^a-z]{1,9}"}, r"[A-Z]{2}\n[^a-z]{1,9}")}
    tools = [{"type": "custom", "name": name, "format": {"type": "grammar", **format}} for name, (format, _) in formats.items()]
    names = set()
    for seed in range(6):
        for way in ({"tool_choice": "required"}, {"tool_choice": {"type": "custom", "name": "patch"}}, {"logit_bias": {mark: 100, think: -100}}):
            answer = server.post("/v1/responses", input="Hi", seed=seed, max_output_tokens=160, tools=tools, parallel_tool_calls=False, **{"logit_bias": {think: -100}, **way})
            for call in (item for item in answer["output"] if item["type"] == "custom_tool_call"):
                names.add(call["name"])
                fits = re.fullmatch(formats[call["name"]][1], call["input"])
                checks.check(fits or answer["status"] == "incomplete", f"{way}: {call}")
    checks.check(names == set(formats), f"drawn calls are of {names}")
    wrong = {"type": "custom", "name": "f", "format": {"type": "grammar", "syntax": "lark", "definition": "start: A"}}
    status, _, text = server.send("POST", "/v1/responses", {"input": "Hi", "tools": [wrong]})
    error = json.loads(text)["error"]
    checks.check(status == 400 and error["param"] == "tools[0].format" and 'the grammar of "f": at 1(8): unknown name' in error["message"], text)


def promised_calls(model, kind, jsonschema):
    """Drawn calls have the tools' names, and arguments of their schemas."""
    server = Server(model, "--tool-format", kind)
    mark, think = (server.post("/tokenize", prompt=text)["tokens"][0] for text in ("<tool_call>", "<think>"))
    named = {"type": "function", "function": {"name": "look"}}
    ways = [{"tools": tools(False), "tool_choice": "required"},
            {"tools": tools(True), "tool_choice": "required", "parallel_tool_calls": False},
            {"tools": tools(False), "tool_choice": named},
            {"tools": tools(True), "logit_bias": {mark: 100, think: -100}},
            {"tools": tools(False), "parallel_tool_calls": False, "logit_bias": {mark: 100, think: -100}}]
    bodies = [{"messages": HI, "seed": seed, "max_tokens": 160, "logit_bias": {think: -100}, **way} for way in ways for seed in range(6)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: server.post(CHAT, **body)["choices"][0], bodies))
    seen, whole = set(), 0
    for i, (body, choice) in enumerate(zip(bodies, answers)):
        calls, is_whole = check_calls(body, choice, jsonschema)
        way = ways[i // 6]
        checks.check(calls, f"{body}: no call in {choice}")
        # A call that is cut before its name is text.
        checks.check("tool_choice" not in way or not is_whole or not choice["message"]["content"], f"{body}: {choice}")
        checks.check((way.get("parallel_tool_calls", True) and way.get("tool_choice") != named) or len(calls) == 1, f"{body}: {len(calls)} calls")
        checks.check(way.get("tool_choice") != named or calls[0][0] == "look", f"{calls}")
        seen |= {name for name, _ in calls}
        whole += is_whole
        if i % 7 == 0:
            checks.check(streamed(server.send("POST", CHAT, {**body, "stream": True})[2])[0] == calls, f"{body}: a stream has other calls")
    checks.check(seen == set(PARAMETERS) and whole >= 12, f"{kind}: {whole} answers are whole, with calls of {seen}")
    # A keyword that cannot be kept is left out where nothing is promised about it.
    loose = {"messages": HI, "tools": [function("f", {"type": "object", "not": {}})], "tool_choice": "required", "max_tokens": 160, "logit_bias": {think: -100}}
    for seed in range(3):
        calls, is_whole = calls_of(server.post(CHAT, seed=seed, **loose)["choices"][0])
        checks.check(calls and calls[0][0] == "f" and (not is_whole or isinstance(json.loads(calls[0][1]), dict)), f"{calls}")
    # It holds behind the reasoning, which the answer does not end in.
    for seed in range(3):
        choice = server.post(CHAT, messages=HI, seed=seed, tools=tools(True), tool_choice=named, logit_bias={think: 100}, thinking_token_budget=9)["choices"][0]
        checks.check(choice["message"]["reasoning"], f"{choice}")
        check_calls({}, choice, jsonschema)
    schema = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMAS[0]}}}
    strict = [function("f", {"type": "object", "not": {}}, strict=True)]
    for body, param, words in (
            ({"tools": tools(False), "tool_choice": "required", "num_beams": 2}, "tool_choice", ["num_beams"]),
            ({"tools": tools(True), "num_beams": 2}, "tools[0].function.strict", ["num_beams"]),
            ({"tools": tools(False), "parallel_tool_calls": False, "num_beams": 2}, "parallel_tool_calls", ["num_beams"]),
            ({"tools": tools(False), "tool_choice": "required", **schema}, "response_format.json_schema.schema", ["tools", "tool_choice"]),
            ({"tools": strict}, "tools[0].function.strict", ['the parameters of "f"', "not"]),
            ({"tools": tools(True), "tool_choice": {**named, "function": {"name": "g"}}}, "tool_choice", ['"g"']),
            ({"tool_choice": "required"}, "tool_choice", ["needs tools"])):
        status, _, text = server.send("POST", CHAT, {"messages": HI, **body})
        error = json.loads(text).get("error", {})
        checks.check(status == 400 and error["param"] == param and all(word in error["message"] for word in words), f"{body}: {status} {text}")
    promised_texts(server, mark, think)
    server.stop()


jsonschema = None
if import_from("jsonschema[format]==4.26.0", packages):
    import jsonschema
else:
    print("skipped: no jsonschema to validate documents")
# A grammar that was made wakes its request, which else looks again after 600 s.
# Steps are counted.
server = Server(stories, "--keep-alive", "600", "--speculate", "off")
documents(server, jsonschema)
forced(server)
other_forms(server)
refusals(server)
server.stop()
others()
beside_tools()
replays()
thoughts()
with_tools = marked_model(FOLDER, WORK, TEMPLATES / "Qwen-Qwen3-0.6B.jinja")
for format_of_calls in ("hermes", "xml"):
    promised_calls(with_tools, format_of_calls, jsonschema)
checks.finish()
