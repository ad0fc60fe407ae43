"""What programs for vLLM's LLM ask of the Python package besides texts: calls that are kept, budgets of reasoning, allowed tokens, beams and
lists of conversations. The answers are those of the server.

  python_calls.py STORIES TEMPLATES FOLDER
"""
import asyncio
import json
import pathlib
import sys

import qwen_compiler
from checks import Checks
from marked_model import marked_model
from qwen_compiler import BeamSearchParams, SamplingParams
from server import Server

STORIES, TEMPLATES, FOLDER = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
ASK = [{"role": "user", "content": "Who was old?"}]
SCHEMA = {"type": "object", "properties": {"where": {"enum": ["sea", "wood"]}}, "required": ["where"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA, **more}} for name, more in (("look", {}), ("go", {"strict": True}))]
NAMED = {"type": "function", "function": {"name": "go"}}
checks = Checks()


def refused(name, needed, call):
    try:
        call()
        checks.check(False, f"{name} is no error")
    except qwen_compiler.Error as error:
        checks.check(needed in str(error), f"{name} says {str(error)!r}")


def calls_of(message):
    return [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []]


def compare(name, ours, theirs):
    """A result and the answer of the server, with all their choices."""
    for answer, choice in zip(ours.outputs, theirs["choices"], strict=True):
        message = choice["message"]
        checks.expect(name, (answer.text or None, answer.reasoning or None, calls_of(answer.message), answer.finish_reason),
                      (message["content"] or None, message.get("reasoning_content"), calls_of(message), choice["finish_reason"]))


def check_calls(model, server):
    think, mark = (model.token_id(text) for text in ("<think>", "<tool_call>"))
    ways = [{"tool_choice": "required"}, {"tool_choice": "required", "parallel_tool_calls": False}, {"tool_choice": NAMED}, {"tool_choice": "none"}, {}]
    seen = set()
    for number, way in enumerate(ways):
        bias = {think: -100} | ({} if "tool_choice" in way else {mark: 100})
        params = SamplingParams(seed=number, max_tokens=90, n=2, logit_bias=bias)
        ours = model.chat(ASK, params, tools=TOOLS, **way)
        compare(f"calls with {way}", ours, server.post("/v1/chat/completions", messages=ASK, tools=TOOLS, seed=number, max_tokens=90, n=2, logit_bias=bias, **way))
        for answer in ours.outputs:
            seen |= {(way.get("tool_choice") == NAMED, call.name) for call in answer.tool_calls if call.complete}
            checks.check(all(json.loads(call.arguments)["where"] in ("sea", "wood") for call in answer.tool_calls if call.complete), f"{answer.tool_calls}")
            checks.check(bool(answer.tool_calls) == (way.get("tool_choice") != "none"), f"{way}: {answer}")
    checks.check((True, "go") in seen and (True, "look") not in seen and (False, "look") in seen, f"whole calls are {seen}")
    parts = [part for delta in model.chat(ASK, SamplingParams(seed=2, max_tokens=90, logit_bias={think: -100}), tools=TOOLS, tool_choice=NAMED, stream=True)
             for part in delta.tool_calls]
    checks.expect("the name in a stream", [part.name for part in parts if part.name], ["go"])
    answer = asyncio.run(model.achat(ASK, SamplingParams(seed=2, max_tokens=90, logit_bias={think: -100}), tools=TOOLS, tool_choice=NAMED))
    checks.expect("a call in asyncio", (answer.tool_calls[0].name, answer.tool_calls[0].arguments), ("go", "".join(part.arguments for part in parts)))
    # Behind the reasoning, which has a budget.
    bias = {think: 100}
    ours = model.chat(ASK, SamplingParams(seed=4, max_tokens=90, thinking_token_budget=9, logit_bias=bias), tools=TOOLS, tool_choice="required")
    compare("calls behind reasoning", ours, server.post("/v1/chat/completions", messages=ASK, tools=TOOLS, seed=4, max_tokens=90, thinking_token_budget=9,
                                                        logit_bias=bias, tool_choice="required"))
    checks.check(ours.reasoning and ours.tool_calls, f"{ours.outputs}")
    for name, needed, more in (("no tools", "needs tools", {"tool_choice": "required"}), ("no such tool", "no tool has", {"tools": TOOLS, "tool_choice":
                               {"type": "function", "function": {"name": "run"}}}), ("no choice", "tool_choice is 'some'", {"tools": TOOLS, "tool_choice": "some"}),
                               ("a strict schema", "not", {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters":
                                {"type": "object", "not": {}}}}]}), ("a grammar beside", "exclude", {"tools": TOOLS, "response_format": {"type": "json_object"}})):
        refused(name, needed, lambda more=more: model.chat(ASK, SamplingParams(max_tokens=4), **more))


def check_budget(model, server):
    for budget in (0, 5):
        params = {"seed": 3, "max_tokens": 40, "thinking_token_budget": budget}
        body = {"messages": ASK, "logit_bias": {model.token_id("<think>"): 100}}
        ours = model.chat(ASK, SamplingParams(**params, logit_bias=body["logit_bias"]))
        compare(f"a budget of {budget}", ours, server.post("/v1/chat/completions", **params, **body))
        checks.check(bool(ours.reasoning) == (budget > 0), f"{budget}: {ours.outputs}")
    refused("a budget beside processors", "excludes", lambda: SamplingParams(thinking_token_budget=3, logits_processors=[lambda tokens, logits: None]))


def check_allowed(model):
    allowed = [model.tokenize(text)[0] for text in ("a", "b", "c")]
    answer = model.generate("The king", SamplingParams(seed=1, max_tokens=30, allowed_token_ids=allowed))[0]
    checks.check(set(answer.token_ids) <= set(allowed) and len(answer.token_ids) == 30, f"tokens that are not allowed: {answer.token_ids}")
    same = model.generate("The king", SamplingParams(seed=1, max_tokens=30, allowed_token_ids=allowed, logits_processors=[lambda tokens, logits: None]))[0]
    checks.expect("allowed tokens with a processor", same.token_ids, answer.token_ids)
    ours = model.generate("The king", SamplingParams(seed=1, max_tokens=30, structured_outputs={"regex": "[a-c]{9}"}, logits_processors=[lambda tokens, logits: None]))
    checks.expect("a grammar with a processor", (len(ours[0].text), set(ours[0].text) <= set("abc")), (9, True))
    refused("no token", "not in the model's vocabulary", lambda: model.generate("The king", SamplingParams(allowed_token_ids=[-1])))


def check_beams(model, server):
    search = {"num_beams": 4, "n": 3, "length_penalty": 0.5, "max_tokens": 9}
    results = model.generate(["The king", "A cat"], SamplingParams(**search, logprobs=0))
    for result in results:
        choices = server.post("/v1/completions", prompt=result.prompt, logprobs=0, **search)["choices"]
        checks.expect("beams", [(each.text, each.finish_reason, round(each.score, 5)) for each in result.outputs],
                      [(each["text"], each["finish_reason"], round(each["x_score"], 5)) for each in choices])
        checks.expect("logprobs of beams", [[round(each.logprob, 4) for of in answer.logprobs for each in of.values()] for answer in result.outputs],
                      [[round(each, 4) for each in choice["logprobs"]["token_logprobs"]] for choice in choices])
    diverse = SamplingParams(num_beams=4, num_beam_groups=2, diversity_penalty=0.7, early_stopping="never", n=2, max_tokens=9)
    choices = server.post("/v1/completions", prompt="The king", num_beams=4, num_beam_groups=2, diversity_penalty=0.7, early_stopping="never", n=2, max_tokens=9)
    checks.expect("groups of beams", [each.text for each in model.generate("The king", diverse)[0].outputs], [each["text"] for each in choices["choices"]])
    parts = list(model.generate("The king", SamplingParams(**search), stream=True))
    checks.expect("a stream of beams", [part.text for part in parts], [each.text for each in results[0].outputs])
    awaited = asyncio.run(model.agenerate(["The king", "A cat"], SamplingParams(**search)))
    checks.expect("beams in asyncio", [[each.token_ids for each in result.outputs] for result in awaited], [[each.token_ids for each in result.outputs] for result in results])
    output, = model.beam_search("The king", BeamSearchParams(beam_width=4, max_tokens=9, length_penalty=0.5))
    checks.expect("beam_search", [each.text for each in output.sequences[:3]], ["The king" + each.text for each in results[0].outputs])
    checks.expect("one beam", model.beam_search("The king", BeamSearchParams(beam_width=1, max_tokens=9))[0].sequences[0].text,
                  "The king" + model.generate("The king", SamplingParams(temperature=0, max_tokens=9))[0].text)
    refused("more beams than sequences", "num-beams", lambda: model.generate("The king", SamplingParams(num_beams=60)))
    refused("stop with beams", "stop must be empty", lambda: model.generate("The king", SamplingParams(num_beams=2, stop=["."])))
    refused("groups without beams", "num_beams", lambda: SamplingParams(num_beam_groups=2))


def check_chats(model, server):
    later = [{"role": "system", "content": "Be short."}, {"role": "system", "content": "Be kind."}, *ASK, {"role": "system", "content": "Hurry."}]
    conversations = [ASK, later, [*ASK, {"role": "assistant", "content": "The king"}, {"role": "user", "content": "Why?"}]]
    params = [SamplingParams(seed=number, max_tokens=12) for number in range(3)]
    ours = model.chat(conversations, params)
    for number, (conversation, result) in enumerate(zip(conversations, ours, strict=True)):
        compare(f"conversation {number}", result, server.post("/v1/chat/completions", messages=conversation, seed=number, max_tokens=12))
    checks.expect("conversations in asyncio", [each.token_ids for each in asyncio.run(model.achat(conversations, params))], [each.token_ids for each in ours])
    texts = ["", "", ""]
    for delta in model.chat(conversations, params, stream=True):
        texts[delta.prompt_index] += delta.text
    checks.expect("conversations in a stream", texts, [each.text for each in ours])
    checks.expect("one conversation in a list", [each.token_ids for each in model.chat([ASK], params[0])], [ours[0].token_ids])
    checks.expect("variables", model.chat(ASK, params[0], chat_template_kwargs={"enable_thinking": False}).prompt_token_ids,
                  model.chat(ASK, params[0], enable_thinking=False).prompt_token_ids)
    checks.expect("another template", model.detokenize(model.chat(ASK, params[0], chat_template="{{ messages[0].content }}!").prompt_token_ids), "Who was old?!")
    open_end = [*ASK, {"role": "assistant", "content": "The old"}]
    compare("a message that goes on", model.chat(open_end, params[0], continue_final_message=True), server.post(
        "/v1/chat/completions", messages=open_end, continue_final_message=True, add_generation_prompt=False, seed=0, max_tokens=12))
    refused("too few params", "2 params for 3", lambda: model.chat(conversations, params[:2]))


FOLDER.mkdir(parents=True, exist_ok=True)
path = marked_model(STORIES, FOLDER, TEMPLATES / "Qwen-Qwen3-0.6B.jinja")
server = Server(path)
with qwen_compiler.load(path) as model:
    check_calls(model, server)
    check_budget(model, server)
    check_allowed(model)
    check_beams(model, server)
    check_chats(model, server)
server.stop()
# A template that refuses a later system message.
path = marked_model(STORIES, FOLDER, TEMPLATES / "Qwen3.5-4B.jinja")
server = Server(path)
with qwen_compiler.load(path) as model:
    check_chats(model, server)
server.stop()
checks.finish()
