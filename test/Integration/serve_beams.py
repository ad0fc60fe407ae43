"""Beam search of qwen-run serve. serve.py calls this."""
import concurrent.futures
import json

from checks import run
from serve_answers import joined, whole


def beams(checks, server, model):
    """A beam search has the answers of generate, alone, streamed at its end and beside others."""
    search = {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5, "length_penalty": 1.5, "early_stopping": "never"}
    flags = [part for key, value in search.items() for part in ("--" + key.replace("_", "-"), value)]
    answers = json.loads(run(["qwen-run", "generate", model, "-p", "The king", "-n", 30, "--num-return-sequences", 3, "--json", *flags]))["answers"]
    body = {"prompt": "The king", "max_tokens": 30, "n": 3, "logprobs": 0, "return_token_ids": True, **search}

    def check(answer):
        checks.expect("the ids of beams", [choice["token_ids"] for choice in answer["choices"]], [each["ids"] for each in answers])
        checks.expect("the scores of beams", [choice["x_score"] for choice in answer["choices"]], [each["score"] for each in answers])
        checks.expect("the logprobs of beams", [choice["logprobs"]["token_logprobs"] for choice in answer["choices"]], [each["logprobs"] for each in answers])
        checks.expect("the ends of beams", [choice["finish_reason"] for choice in answer["choices"]], [each["finish_reason"] for each in answers])
        checks.expect("the texts of beams", [choice["text"] for choice in answer["choices"]], [each["text"] for each in answers])
        checks.expect("the usage of beams", answer["usage"]["completion_tokens"], sum(len(each["ids"]) for each in answers))
    alone = server.post("/v1/completions", **body)
    check(alone)
    checks.expect("streamed beams", joined(checks, server.events("/v1/completions", **body)), whole(alone))
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        others = [pool.submit(server.post, "/v1/completions", prompt="Once", seed=1, max_tokens=60, ignore_eos=True) for _ in range(6)]
        for together in list(pool.map(lambda _: server.post("/v1/completions", **body), range(6))):
            check(together)
        checks.expect("answers beside beams", len({other.result()["choices"][0]["text"] for other in others}), 1)
    # Several prompts, an echo, and a chat by the other name of n.
    listed = server.post("/v1/completions", **{**body, "prompt": ["The king", "The king"], "echo": True})
    checks.expect("beams of two prompts", [choice["text"] for choice in listed["choices"]], 2 * ["The king" + each["text"] for each in answers])
    chat = server.post("/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}], num_beams=3, num_return_sequences=2, max_tokens=9)
    checks.expect("the choices of a chat", sorted(choice["index"] for choice in chat["choices"]), [0, 1])
    checks.check(chat["choices"][0]["x_score"] >= chat["choices"][1]["x_score"], "the best answer is not first")
    server.wait_idle()
    long = server.start(stream=False, num_beams=5, n=5)
    server.wait_running()
    checks.expect("the sequences of a search", server.metric("vllm:num_requests_running"), 5)
    long.close()
    server.wait_idle()
