"""The same bits in all ways to an answer: generate, a stream, a batch, threads, asyncio, HTTP and the command line.

  python_bits.py MODEL
"""
import asyncio
import concurrent.futures
import sys

import qwen_compiler
from checks import Checks, run
from qwen_compiler import SamplingParams
from server import Server

MODEL = sys.argv[1]
TOKENS, SEED = 24, 7
PROMPTS = ["Once upon a time", "The king", "Lily and Ben", "", "A cat sat", "Tom had a red ball", "The sun was hot", "\u00e9t\u00e9 \U0001f600", "One day,", "\n\n",
           "Mum said: ", "Why did the dog", "12 + 7 =", "She was sad because", "In the forest", "He ran", "The end.", "\"Hello\" said", "<|im_end|>", "a" * 50]
checks = Checks()


def params(**more):
    return SamplingParams(seed=SEED, max_tokens=TOKENS, **more)


def expect(name, texts):
    for prompt, text, other in zip(PROMPTS, texts, expected, strict=True):
        checks.expect(f"{name} {prompt!r}", text, other)


def streamed(model, prompt):
    return "".join(delta.text for delta in model.generate(prompt, params(), stream=True))


async def tasks(model):
    """Answers and streams of many tasks at once."""

    async def one(prompt):
        return (await model.agenerate(prompt, params()))[0].text

    async def parts(prompt):
        return "".join([delta.text async for delta in model.agenerate(prompt, params(), stream=True)])

    texts = await asyncio.gather(*map(one, PROMPTS), *map(parts, PROMPTS))
    return texts[:len(PROMPTS)], texts[len(PROMPTS):]


expected = [run(["qwen-run", "generate", MODEL, "-p", prompt, "-n", TOKENS, "--seed", SEED]).removesuffix("\n") for prompt in PROMPTS]
checks.check(len(set(expected)) > 15, "the answers are too much alike")
with qwen_compiler.load(MODEL, sequences=8) as model:
    expect("generate", [model.generate(prompt, params())[0].text for prompt in PROMPTS])
    expect("stream", [streamed(model, prompt) for prompt in PROMPTS])
    results = model.generate(PROMPTS, params(logprobs=2))
    expect("batch", [result.text for result in results])
    expect("batch of ids", [result.text for result in model.generate([result.prompt_token_ids for result in results], params())])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        expect("threads", list(pool.map(lambda prompt: model.generate(prompt, params())[0].text, PROMPTS)))
    texts, streams = asyncio.run(tasks(model))
    expect("asyncio", texts)
    expect("streams of asyncio", streams)
    expect("a processor without effect", [result.text for result in model.generate(PROMPTS, params(logits_processors=[lambda tokens, logits: None]))])
    several = model.generate(PROMPTS[:2], params(n=3, repetition_penalty=1.1, frequency_penalty=0.2, no_repeat_ngram_size=4))
    same = model.generate(PROMPTS[:2], params(n=3, repetition_penalty=1.1, frequency_penalty=0.2, no_repeat_ngram_size=4,
                                              logits_processors=[lambda tokens, logits: logits]))
    checks.expect("a processor beside penalties", [answer.token_ids for each in same for answer in each.outputs],
                  [answer.token_ids for each in several for answer in each.outputs])
    # A seed that was drawn draws the same answer again.
    first = model.generate("The king", SamplingParams(max_tokens=TOKENS))[0]
    checks.expect("the seed of a result", model.generate("The king", SamplingParams(max_tokens=TOKENS, seed=first.seed))[0].token_ids, first.token_ids)
server = Server(MODEL)
expect("HTTP", [server.post("/v1/completions", prompt=prompt or [results[3].prompt_token_ids], seed=SEED, max_tokens=TOKENS)["choices"][0]["text"]
                for prompt in PROMPTS])
answer = server.post("/v1/completions", prompt=PROMPTS[0], seed=SEED, max_tokens=TOKENS, logprobs=2)["choices"][0]["logprobs"]
ours = [each[token].logprob for token, each in zip(results[0].token_ids, results[0].logprobs)]
checks.expect("logprobs by HTTP", [round(each, 4) for each in answer["token_logprobs"]], [round(each, 4) for each in ours][:len(answer["token_logprobs"])])
for index, (several_of, prompt) in enumerate(zip(several, PROMPTS)):
    choices = server.post("/v1/completions", prompt=prompt, seed=SEED, max_tokens=TOKENS, n=3, repetition_penalty=1.1, frequency_penalty=0.2,
                          no_repeat_ngram_size=4)["choices"]
    checks.expect(f"three answers by HTTP {index}", [choice["text"] for choice in choices], [each.text for each in several_of.outputs])
server.stop()
checks.finish()
