"""What routers send and ask is answered: the fields that they add, and the ids of a prompt before it runs.

  router_requests.py MODEL      MODEL is models/stories, compiled
"""
import json
import sys

from checks import Checks
from server import Server

checks = Checks()
expect = checks.expect
server = Server(sys.argv[1])

# The bodies of vllm-router 0.1.17.
completion = {"model": "stories", "prompt": "Once upon a time", "max_tokens": 8, "stream": False, "echo": False, "seed": 1, "no_stop_trim": False,
              "ignore_eos": False, "skip_special_tokens": True, "return_hidden_states": False}
messages = [{"role": "system", "content": "Tell a story."}, {"role": "user", "content": "Of a king."}]
chat = {"model": "stories", "messages": messages, "stream": False, "max_tokens": 8, "seed": 1, "logprobs": False, "no_stop_trim": False,
        "ignore_eos": False, "continue_final_message": False, "skip_special_tokens": True, "separate_reasoning": True, "stream_reasoning": True,
        "return_hidden_states": False, "include_reasoning": True}
for path, body, plain in (("/v1/completions", completion, ("model", "prompt", "max_tokens", "seed")), ("/v1/chat/completions", chat, ("model", "messages", "max_tokens", "seed"))):
    answer = server.post(path, **body, return_token_ids=True)
    prompt = answer["choices"][0].get("prompt_token_ids") or answer["prompt_token_ids"]
    expect(f"the answer of {path}", answer["choices"], server.post(path, **{name: body[name] for name in plain}, return_token_ids=True)["choices"])
    rendered = server.post(path + "/render", **body)
    if path == "/v1/completions":
        expect("the number of prompts", len(rendered), 1)
        rendered, = rendered
    expect(f"the ids of {path}/render", rendered["token_ids"], prompt)
    checks.check(rendered["model"] == "stories" and rendered["request_id"].startswith(answer["id"].split("-")[0] + "-"), f"{path}/render says {rendered}")
    expect(f"the settings of {path}/render", [rendered["sampling_params"][name] for name in ("max_tokens", "seed", "n")], [8, 1, 1])
    question = {"messages": messages, "continue_final_message": False} if "messages" in body else {"prompt": body["prompt"]}
    told = server.post("/tokenize", model="stories", **question)
    expect(f"/tokenize of {path}", (told["tokens"], told["count"]), (prompt, len(prompt)))
    for name in ("no_stop_trim", "return_hidden_states", "separate_reasoning", "stream_reasoning", "include_reasoning"):
        if name in body:
            status, _, text = server.send("POST", path, {**body, name: not body[name]})
            expect(f"another {name}", (status, json.loads(text)["error"]["param"]), (400, name))
expect("the ids of several prompts", [each["token_ids"] for each in server.post("/v1/completions/render", prompt=["Once", [5, 6, 7]], truncate_prompt_tokens=2)],
       [server.post("/tokenize", prompt="Once")["tokens"][-2:], [6, 7]])
pieces = server.post("/tokenize", messages=messages, add_generation_prompt=False, with_pieces=True)["tokens"]
text = "".join(each["piece"] for each in pieces)
checks.check("Of a king." in text and len(pieces) < len(server.post("/tokenize", messages=messages)["tokens"]), f"the pieces of a chat are {text!r}")
for path, body, named in (("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": "x", "messages": messages}, "messages"), ("/tokenize", {"messages": "x"}, "messages"),
                          ("/v1/completions/render", {"prompt": ""}, "prompt"), ("/v1/chat/completions/render", {"messages": messages, "n": 0}, "n"),
                          ("/v1/completions/render", {"prompt": [1] * 100000}, "prompt")):
    status, _, text = server.send("POST", path, body)
    expect(f"{path} of {str(body)[:40]}", (status, json.loads(text)["error"]["param"]), (400, named))
server.stop()
checks.finish()
