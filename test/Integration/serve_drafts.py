"""Drafts of qwen-run serve. serve.py calls this."""
from server import Server


def drafts(checks, server, model):
    """An answer that repeats itself has drafts, and the same tokens and logprobs as without."""
    plain = Server(model, "--speculate", "off")
    # The model drafts for itself.
    second = Server(model, "--speculate", model)
    for body in ({"logit_bias": {"100": 100}}, {"prompt": "one two three. " * 12, "n": 2}, {"logprobs": 2, "logit_bias": {"7": 9, "8": 9}, "temperature": 1}):
        body = {"prompt": "Once", "max_tokens": 200, "ignore_eos": True, "temperature": 0, "seed": 4, "return_token_ids": True, **body}
        answer, other = server.post("/v1/completions", **body), plain.post("/v1/completions", **body)
        checks.expect(f"choices of {body} with drafts", answer["choices"], other["choices"])
        checks.expect(f"choices of {body} with drafts of a model", second.post("/v1/completions", **body)["choices"], other["choices"])
        checks.check("draft_n" not in other["timings"], f"{other['timings']} of a server without drafts")
        timings = answer["timings"]
        checks.check(0 <= timings.get("draft_n_accepted", 0) <= timings.get("draft_n", 0), f"{timings}")
        if body.get("logit_bias") == {"100": 100}:
            checks.check(timings.get("draft_n_accepted", 0) > 50, f"an answer of one token has few drafts: {timings}")
    counts = [server.metric(f"vllm:spec_decode_num_{name}_total") for name in ("drafts", "draft_tokens", "accepted_tokens")]
    checks.check(0 < counts[0] <= counts[1] and 50 < counts[2] <= counts[1], f"drafts in /metrics: {counts}")
    checks.expect("drafts of a server without", plain.metric("vllm:spec_decode_num_drafts_total"), 0)
    plain.stop()
    second.stop()
