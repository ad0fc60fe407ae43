#!/usr/bin/env python3
"""What a grammar costs a step of a model, in alternating runs of one server.

  .venv/bin/python bench/grammars.py MODEL [--program qwen-run] [--sequences 1,16] [--rounds N] [--tokens N] [--threads N]

MODEL is a compiled file. A run has requests of 16 random token ids that draw 32 tokens, and more: the difference is decode alone. An answer has a list of documents of
one of the four schemas, or no grammar. For each number of sequences, the bench prints two medians of each schema, and their means over the schemas:
- the share of a step that the grammar takes, from the server's own clock (qwen_grammar_seconds_total of /metrics),
- the time of a token with the grammar, divided by the time without it, with the least and the greatest ratio. This ratio includes the noise of the machine.
Requests with logprobs draw each token. Requests without them append a token that has no other choice without a draw.
"""
import argparse
import random
import statistics

from beams import SHORT, TimedServer

WORD = {"type": "string", "maxLength": 40}
# Those of SERVING.md, 2.3.
SCHEMAS = {
    "arguments of a tool": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
        "required": ["city", "days", "unit"], "additionalProperties": False},
    "references, maxLength": {
        "type": "object", "properties": {"name": WORD, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 3}},
        "required": ["name", "children"], "additionalProperties": False},
    "date-time, pattern, anyOf": {
        "type": "object", "properties": {"when": {"type": "string", "format": "date-time"}, "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
                                         "value": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
        "required": ["when", "id", "value"], "additionalProperties": False},
    "any object": {"type": "object"},
}
NODE = {"type": "object", "properties": {"name": WORD, "leaf": {"type": "boolean"}}, "required": ["name", "leaf"], "additionalProperties": False}


def grammar(schema):
    """A list that is not over before the answer."""
    return {"guided_json": {"type": "array", "minItems": 1000, "items": schema, "$defs": {"node": NODE}}}


def seconds_of_token(server, prompts, seed, tokens, more):
    body = {"prompt": prompts, "seed": seed, "temperature": 1, **more}
    short, long = (server.seconds({**body, "max_tokens": most}) for most in (SHORT, SHORT + tokens))
    return (long - short) / tokens


def times(server):
    """Seconds that all threads spent on grammars, and seconds of decode, summed over the requests."""
    return [server.metric(name) for name in ("qwen_grammar_seconds_total", "llamacpp:tokens_predicted_seconds_total")]


def measure(server, count, options, generator, more):
    """The shares and the ratios of each schema."""
    shares, ratios = ({name: [] for name in SCHEMAS} for _ in range(2))
    for _ in range(options.rounds):
        prompts = [[generator.randrange(1000, 50000) for _ in range(16)] for _ in range(count)]
        seed = generator.randrange(1 << 30)
        for name, schema in SCHEMAS.items():
            plain = seconds_of_token(server, prompts, seed, options.tokens, more)
            before = times(server)
            kept = seconds_of_token(server, prompts, seed, options.tokens, {**more, **grammar(schema)})
            grammars, decode = (after - start for after, start in zip(times(server), before))
            # Threads share the grammars of a step, and requests the steps.
            shares[name].append(grammars / min(options.threads, count) / (decode / count))
            ratios[name].append(kept / plain)
    return shares, ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--program", default="build/host/bin/qwen-run")
    parser.add_argument("--sequences", default="1,16")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    server = TimedServer(options)
    generator = random.Random(1)
    try:
        for count in map(int, options.sequences.split(",")):
            for way, more in (("drawn", {"logprobs": 0}), ("forced where possible", {})):
                shares, ratios = measure(server, count, options, generator, more)
                for name, each in ratios.items():
                    print(f"{count} sequences, {way}, {name}: {statistics.median(shares[name]):.2%} of a step; a token takes {statistics.median(each):.3f} "
                          f"({min(each):.3f} to {max(each):.3f})", flush=True)
                share, ratio = (statistics.mean(map(statistics.median, values.values())) for values in (shares, ratios))
                print(f"{count} sequences, {way}, mean: {share:.2%} of a step; a token takes {ratio:.3f}", flush=True)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
