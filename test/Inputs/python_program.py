"""A program that uses all public names of the package, for mypy --strict (python_types.py)."""
from collections.abc import AsyncIterator, Iterator
from typing import Any

import qwen_compiler
from qwen_compiler import (AnswerError, BeamSearchOutput, BeamSearchParams, BeamSearchSequence, ClosedError, Completion, Delta, Error, LogitsProcessor,
                           Logprob, Model, Prompt, Result, SamplingParams, TextPrompt, TokensPrompt, ToolCall, ToolDelta)
from qwen_compiler.llama import Llama
from qwen_compiler.weights import WeightFormat, WeightParts, formats, quantize_rows


def halve(tokens: list[int], logits: Any) -> Any:
    return logits / 2


processor: LogitsProcessor = halve


def use(model: Model) -> float:
    text: TextPrompt = {"prompt": "The king"}
    ids: TokensPrompt = {"prompt_token_ids": model.tokenize("The king")}
    prompts: list[Prompt] = [text, ids, "The king", [1, 2]]
    params = SamplingParams(temperature=0.5, max_tokens=4, seed=1, logprobs=1, logits_processors=[processor])
    results: list[Result] = model.generate(prompts, params)
    completion: Completion = results[0].outputs[0]
    logprobs: dict[int, Logprob] = (completion.logprobs or [{}])[0]
    deltas: Iterator[Delta] = model.generate("The king", params, stream=True)
    parts: list[ToolDelta] = [part for delta in deltas for part in delta.tool_calls]
    chat: Result = model.chat([{"role": "user", "content": "Hi"}], SamplingParams.of(max_new_tokens=3), response_format={"type": "text"})
    calls: list[ToolCall] = chat.tool_calls
    chats: list[Result] = model.chat([[{"role": "user", "content": "Hi"}]], [params], tool_choice="auto")
    searched: list[BeamSearchOutput] = model.beam_search("The king", BeamSearchParams(beam_width=2, max_tokens=3))
    sequence: BeamSearchSequence = searched[0].sequences[0]
    scores: list[tuple[float, bool]] = model.loglikelihoods([([1], [2])])
    return sum(each.logprob for each in logprobs.values()) + len(parts) + len(calls) + scores[0][0] + model.perplexity("The king was old.") + len(chats) + sequence.cum_logprob


async def wait(model: Model) -> str:
    deltas: AsyncIterator[Delta] = model.agenerate("The king", stream=True)
    texts = [delta.text async for delta in deltas]
    results: list[Result] = await model.agenerate(["The king"])
    chat: Result = await model.achat([{"role": "user", "content": "Hi"}])
    chats: list[Result] = await model.achat([[{"role": "user", "content": "Hi"}]])
    scores: list[float] = await model.arerank("Hi", [str(await model.aembed(chats[0].text))])
    print(scores)
    return "".join(texts) + results[0].text + chat.text


def main(checkpoint: str) -> None:
    try:
        qwen_compiler.compile(checkpoint, "model.qwen", weights="q4_0", progress=lambda stage, done, total: print(stage, done, total))
        with qwen_compiler.load("model.qwen", threads=2) as model:
            print(use(model), qwen_compiler.__version__, model.embed("Hi"), model.rerank("Hi", ["Ho"]), model.logits([1]))
        print(Llama("model.qwen")("The king", max_tokens=3)["choices"][0]["text"])
    except ClosedError:
        print("closed")
    except AnswerError as error:
        print(error.results, error.__cause__)
    except Error as error:
        print(error.code)


def rounded(matrix: Any) -> WeightParts:
    format: WeightFormat = next(each for each in formats().values() if not each.is_float)
    return quantize_rows(format.name, matrix)
