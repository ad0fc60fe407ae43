"""Talks to the server at an address with OpenAI's client; clients.py starts both."""
import asyncio
import sys

import openai

address = sys.argv[1]
client = openai.OpenAI(base_url=address, api_key="secret", max_retries=0)
messages = [{"role": "user", "content": "Tell a story."}]
options = {"model": "stories", "seed": 7}


def expect(name, got, expected):
    if got != expected:
        sys.exit(f"{name}: {got!r} is not {expected!r}")


def refused(name, error, parameter, call, **arguments):
    try:
        call(**arguments)
    except error as raised:
        expect(name, raised.param, parameter)
    else:
        sys.exit(f"{name}: no error")


expect("models", [m.id for m in client.models.list()], ["stories"])

chat = client.chat.completions
whole = chat.create(messages=messages, max_completion_tokens=30, logprobs=True, top_logprobs=2, n=2, **options)
expect("choices", [(c.index, c.message.role, c.finish_reason) for c in whole.choices],
       [(0, "assistant", "length"), (1, "assistant", "length")])
expect("logprobs", [len(c.logprobs.content) for c in whole.choices], [30, 30])
expect("usage", (whole.usage.completion_tokens, whole.usage.completion_tokens_details.reasoning_tokens), (60, 0))
texts = ["", ""]
for chunk in chat.create(messages=messages, max_completion_tokens=30, n=2, stream=True,
                         stream_options={"include_usage": True}, **options):
    for choice in chunk.choices:
        texts[choice.index] += choice.delta.content or ""
expect("a stream", texts, [c.message.content for c in whole.choices])
expect("usage of a stream", chunk.usage.completion_tokens, 60)

scores = client.completions.create(prompt=[[257, 1539, 220], [5, 6]], max_tokens=0, echo=True, logprobs=1, **options)
expect("scores", [(len(c.logprobs.token_logprobs), c.logprobs.token_logprobs[0]) for c in scores.choices], [(3, None), (2, None)])
text = client.completions.create(prompt="The king", max_tokens=20, logit_bias={"400": -100}, frequency_penalty=0.5, **options)
pieces = client.completions.create(prompt="The king", max_tokens=20, logit_bias={"400": -100}, frequency_penalty=0.5, stream=True, **options)
expect("a text", "".join(c.choices[0].text for c in pieces), text.choices[0].text)
vectors = client.embeddings.create(model="stories", input=["Hello", "there"])
expect("embeddings", [len(d.embedding) for d in vectors.data], [256, 256])

refused("a parameter", openai.BadRequestError, "temperature", chat.create, messages=messages, temperature=9, **options)
refused("a model", openai.NotFoundError, "model", chat.create, messages=messages, model="other")


async def many():
    """Several at once, of which one is left in the middle."""
    shared = openai.AsyncOpenAI(base_url=address, api_key="secret", max_retries=0)
    left = await shared.chat.completions.create(messages=messages, stream=True, **options)
    async for _ in left:
        break
    await left.close()
    answers = await asyncio.gather(*(shared.chat.completions.create(messages=messages, max_tokens=30, **options) for _ in range(8)))
    expect("answers at once", {a.choices[0].message.content for a in answers}, {whole.choices[0].message.content})


asyncio.run(many())
