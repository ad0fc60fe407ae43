#!/usr/bin/env python3
"""What a grammar costs a step of a model, in alternating runs of one server.

  .venv/bin/python bench/grammars.py MODEL [--program qwen-run] [--sequences 1,16] [--rounds N] [--tokens N] [--threads N]

MODEL is a compiled file. A run has requests of 16 random token ids that draw 32 tokens, and more: the difference is decode alone. An answer has a list of documents of
one of the four schemas, or no grammar. Prints for each number of sequences and each schema the median of the ratios of the rounds, with the least and the greatest, and
their mean over the schemas: of a token's time with logprobs, for which each token is drawn, and without, where a token that has no other choice is not.
"""
import argparse
import random
import statistics

from beams import SHORT, Server

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
    return {"guided_json": {"type": "array", "minItems": 1000, "items": schema, "$defs": {"node": NODE}}} if schema else {}


def seconds_of_token(server, prompts, seed, tokens, more):
    body = {"prompt": prompts, "seed": seed, "temperature": 1, **more}
    short, long = (server.seconds({**body, "max_tokens": most}) for most in (SHORT, SHORT + tokens))
    return (long - short) / tokens


def measure(server, count, options, generator, more):
    """The ratios of each schema."""
    ratios = {name: [] for name in SCHEMAS}
    for _ in range(options.rounds):
        prompts = [[generator.randrange(1000, 50000) for _ in range(16)] for _ in range(count)]
        seed = generator.randrange(1 << 30)
        for name, schema in SCHEMAS.items():
            plain, kept = (seconds_of_token(server, prompts, seed, options.tokens, {**more, **grammar(of)}) for of in (None, schema))
            ratios[name].append(kept / plain)
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--program", default="build/host/bin/qwen-run")
    parser.add_argument("--sequences", default="1,16")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    server = Server(options)
    generator = random.Random(1)
    try:
        for count in map(int, options.sequences.split(",")):
            for way, more in (("drawn", {"logprobs": 0}), ("forced where possible", {})):
                ratios = measure(server, count, options, generator, more)
                for name, each in ratios.items():
                    print(f"{count} sequences, {way}, {name}: {statistics.median(each):.3f} ({min(each):.3f} to {max(each):.3f})", flush=True)
                print(f"{count} sequences, {way}, mean: {statistics.mean(map(statistics.median, ratios.values())):.3f}", flush=True)
    finally:
        server.process.terminate()
        server.process.wait()


if __name__ == "__main__":
    main()
