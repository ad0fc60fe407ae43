"""Programs of llama-cpp-python with their import changed: the answers are the server's. And calls of tools.

  python_llama.py MODEL TEMPLATE      TEMPLATE is a chat template with tools
"""
import json
import pathlib
import sys

import qwen_compiler
from checks import Checks
from qwen_compiler.llama import Llama, LlamaGrammar
from server import Server

MODEL = sys.argv[1]
MESSAGES = [{"role": "user", "content": "Who was old?"}]
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks", "parameters": {"type": "object", "properties": {}}}}]
checks = Checks()
server = Server(MODEL)
llama = Llama(MODEL, n_ctx=512, n_threads=2, n_gpu_layers=-1, verbose=False)


def theirs(path, **body):
    return server.post(path, **body)


answer = llama("The king", max_tokens=20, seed=4, stop=["."], temperature=0.7, top_k=30, repeat_penalty=1.1, echo=True)
expected = theirs("/v1/completions", prompt="The king", max_tokens=20, seed=4, stop=["."], temperature=0.7, top_k=30, repetition_penalty=1.1, echo=True)
checks.expect("a completion", [(each["text"], each["finish_reason"]) for each in answer["choices"]],
              [(each["text"], each["finish_reason"]) for each in expected["choices"]])
checks.expect("its form", sorted(answer), ["choices", "created", "id", "model", "object", "usage"])
checks.expect("tokens of the prompt", answer["usage"]["prompt_tokens"], expected["usage"]["prompt_tokens"])
chunks = list(llama.create_completion("The king", max_tokens=20, seed=4, stop=["."], temperature=0.7, top_k=30, repeat_penalty=1.1, stream=True))
checks.expect("a stream", "The king" + "".join(chunk["choices"][0]["text"] for chunk in chunks), answer["choices"][0]["text"])
checks.expect("the end of a stream", [chunk["choices"][0]["finish_reason"] for chunk in chunks[-2:]], [None, answer["choices"][0]["finish_reason"]])
chat = llama.create_chat_completion(MESSAGES, max_tokens=20, seed=4, logprobs=True, top_logprobs=2)
expected = theirs("/v1/chat/completions", messages=MESSAGES, max_tokens=20, seed=4, logprobs=True, top_logprobs=2)["choices"][0]
ours = chat["choices"][0]
checks.expect("a chat", (ours["message"]["content"], ours["finish_reason"]), (expected["message"]["content"], expected["finish_reason"]))
checks.expect("logprobs of a chat", [(each["token"], len(each["top_logprobs"]) >= 2) for each in ours["logprobs"]["content"]][:len(expected["logprobs"]["content"])],
              [(each["token"], True) for each in expected["logprobs"]["content"]])
chunks = list(llama.create_chat_completion(MESSAGES, max_tokens=20, seed=4, stream=True))
checks.expect("parts of a chat", "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks), ours["message"]["content"])
checks.expect("the first part", chunks[0]["choices"][0]["delta"], {"role": "assistant"})
document = llama.create_chat_completion(MESSAGES, max_tokens=30, seed=4, response_format={"type": "json_object", "schema": {
    "type": "object", "properties": {"age": {"enum": [1, 2]}}, "required": ["age"], "additionalProperties": False}})["choices"][0]["message"]["content"]
checks.check(json.loads(document)["age"] in (1, 2), f"the schema is not kept: {document}")
gbnf = 'root ::= "Tom " verb "."\nverb ::= "ran" | "sat"'
checks.expect("a grammar in GBNF", llama("The king", max_tokens=20, seed=4, grammar=LlamaGrammar.from_string(gbnf))["choices"][0]["text"],
              theirs("/v1/completions", prompt="The king", max_tokens=20, seed=4, grammar=gbnf)["choices"][0]["text"])
schema = json.dumps({"enum": ["old", "new"]})
document = llama.create_chat_completion(MESSAGES, max_tokens=20, grammar=LlamaGrammar.from_json_schema(schema))["choices"][0]["message"]["content"]
checks.check(json.loads(document) in ("old", "new"), f"a grammar of a schema gives {document!r}")
checks.expect("embeddings", [each["embedding"] for each in llama.create_embedding(["The king", "A cat"])["data"]], [llama.embed("The king"), llama.embed("A cat")])
checks.expect("tokens", llama.detokenize(llama.tokenize(b"The king was old.")), b"The king was old.")
checks.expect("sizes", (llama.n_ctx(), llama.n_vocab(), llama.context_params.n_ctx), (1024, 4096, 1024))
banned = llama.tokenize(b".")[0]


def ban(tokens, scores):
    scores[banned] = -float("inf")
    return scores


checks.check("." not in llama("The king", max_tokens=60, seed=4, logits_processor=[ban])["choices"][0]["text"], "a processor has no effect")
for name, call in {"too much context": lambda: Llama(MODEL, n_ctx=5000), "an unknown option": lambda: llama("The king", colour="red"),
                   "a required tool that is none": lambda: llama.create_chat_completion(MESSAGES, tool_choice="required")}.items():
    try:
        call()
        checks.check(False, f"{name} is no error")
    except qwen_compiler.Error:
        pass
server.stop()
llama.close()

# An answer that must be a call, whole and in parts.
call = """<tool_call>\n{"name": "look", "arguments": {"at": "it"}}\n</tool_call>"""
with Llama(MODEL, chat_template=pathlib.Path(sys.argv[2]).read_text()) as llama:
    options = {"tools": TOOLS, "max_tokens": 60, "seed": 1, "structured_outputs": {"choice": [call]}}
    whole = llama.create_chat_completion(MESSAGES, **options)["choices"][0]
    function = whole["message"]["tool_calls"][0]["function"]
    checks.expect("a call", (function["name"], json.loads(function["arguments"]), whole["finish_reason"]), ("look", {"at": "it"}, "tool_calls"))
    parts = [part["function"] for chunk in llama.create_chat_completion(MESSAGES, **options, stream=True)
             for part in chunk["choices"][0]["delta"].get("tool_calls", [])]
    checks.expect("the name of a call in parts", [part.get("name") for part in parts], ["look"] + [None] * (len(parts) - 1))
    checks.expect("its arguments", "".join(part["arguments"] for part in parts), function["arguments"])
    turns = [*MESSAGES, whole["message"], {"role": "tool", "content": "the king", "tool_call_id": whole["message"]["tool_calls"][0]["id"]}]
    prompt = llama.model.apply_chat_template(turns, tools=TOOLS)
    checks.check('{"name": "look", "arguments": {"at": "it"}}' in prompt and "the king" in prompt, f"a call that comes back is {prompt!r}")
    cut = llama.create_chat_completion(MESSAGES, **(options | {"max_tokens": 12}))["choices"][0]
    checks.expect("a call that is cut", cut["finish_reason"], "length")
checks.finish()
