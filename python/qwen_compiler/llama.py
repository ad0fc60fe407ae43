"""`Llama` of llama-cpp-python over this package, for programs that are written for it: `from qwen_compiler.llama import Llama`."""
from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ._answers import Completion, Delta, Logprob, Result
from ._errors import Error
from ._model import Model, load
from ._sampling import SamplingParams

# What changes nothing here: how other programs place a model, or what the compiled file says.
IGNORED = frozenset({"n_gpu_layers", "n_batch", "n_ubatch", "n_threads_batch", "use_mmap", "use_mlock", "verbose", "logits_all", "embedding", "flash_attn",
                     "main_gpu", "split_mode", "offload_kqv", "vocab_only", "last_n_tokens_size", "chat_format", "pooling_type", "numa"})


class LlamaGrammar:
    """What answers keep to, by llama-cpp-python's names."""

    def __init__(self, structured_outputs: dict[str, Any]) -> None:
        """`structured_outputs` as in SamplingParams."""
        self.structured_outputs = structured_outputs

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        """A grammar in GBNF."""
        return cls({"grammar": grammar})

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        """The documents of a JSON schema."""
        return cls({"json": json_schema})


class Llama:
    """A model by llama-cpp-python's names. Answers are OpenAI's dictionaries."""

    def __init__(self, model_path: str, *, n_ctx: int = 0, n_threads: int | None = None, seed: int | None = None, **options: Any) -> None:
        """`model_path` is what `load` takes, and so are further `options`. `n_ctx` must be within the model's context."""
        given = {name: value for name, value in options.items() if name not in IGNORED}
        self.model: Model = load(model_path, threads=n_threads or 0, **given)
        """The model."""
        self.model_path = model_path
        if n_ctx > self.model.context_size:
            size = self.model.context_size
            self.model.close()
            raise Error(f"n_ctx is {n_ctx} when the model has {size} tokens of context; compile it with context={n_ctx}")
        self.seed = seed
        self.context_params = SimpleNamespace(n_ctx=self.model.context_size)
        self.metadata: dict[str, str] = {"general.name": str(self.model.info.get("name", model_path))}

    @classmethod
    def from_pretrained(cls, repo_id: str, filename: str | None = None, **options: Any) -> Llama:
        """A model of Hugging Face's cache, by its name there."""
        return cls(repo_id, **options)

    # Sizes and tokens.

    def n_ctx(self) -> int:
        """Maximum number of tokens of prompt and answer."""
        return self.model.context_size

    def n_vocab(self) -> int:
        """Number of token ids."""
        return self.model.vocab_size

    def token_eos(self) -> int:
        """The token that ends an answer."""
        return self.model.end_tokens[0]

    def token_bos(self) -> int:
        """The token that begins a text, or -1."""
        return -1 if self.model.begin_token is None else self.model.begin_token

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """The token ids of a text. Qwen models begin texts with no token."""
        return self.model.tokenize(text.decode(errors="replace"), special=special)

    def detokenize(self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False) -> bytes:
        """The bytes of token ids."""
        return self.model.detokenize_bytes(tokens)

    # Answers.

    def create_completion(self, prompt: str | Sequence[int], suffix: str | None = None, max_tokens: int | None = 16, stream: bool = False, echo: bool = False,
                          logprobs: int | None = None, **options: Any) -> Any:
        """Continues a prompt. Returns OpenAI's dictionary, or with `stream` an iterator of them."""
        if suffix:
            raise Error("a suffix needs a model that fills in the middle, which this class does not run")
        params = self._params(options, max_tokens, logprobs)
        if stream:
            return self._completion_chunks(prompt, params)
        result, = self.model.generate(prompt, params)
        text = (result.prompt if result.prompt is not None else self.model.detokenize(result.prompt_token_ids)) if echo else ""
        return self._head("cmpl", "text_completion") | {"choices": [text_choice(answer, text + answer.text) for answer in result.outputs],
                                                       "usage": usage_of(result)}

    __call__ = create_completion

    def _completion_chunks(self, prompt: str | Sequence[int], params: SamplingParams) -> Iterator[dict[str, Any]]:
        head = self._head("cmpl", "text_completion")
        for delta in self.model.generate(prompt, params, stream=True):
            if delta.text or delta.finish_reason:
                yield head | {"choices": [{"text": delta.text, "index": delta.index, "logprobs": None, "finish_reason": delta.finish_reason}]}

    def create_chat_completion(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, tool_choice: Any = None,
                               response_format: Mapping[str, Any] | None = None, max_tokens: int | None = None, stream: bool = False,
                               logprobs: bool | None = None, top_logprobs: int | None = None, **options: Any) -> Any:
        """Answers a conversation. Returns OpenAI's dictionary, or with `stream` an iterator of them."""
        params = self._params(options, max_tokens, (top_logprobs or 0) if logprobs else None)
        if stream:
            return self._chat_chunks(self.model.chat(messages, params, tools=tools, tool_choice=tool_choice, response_format=response_format, stream=True))
        result = self.model.chat(messages, params, tools=tools, tool_choice=tool_choice, response_format=response_format)
        choices = [{"index": answer.index, "message": answer.message, "logprobs": chat_logprobs(answer), "finish_reason": answer.finish_reason}
                   for answer in result.outputs]
        return self._head("chatcmpl", "chat.completion") | {"choices": choices, "usage": usage_of(result)}

    def _chat_chunks(self, deltas: Iterator[Delta]) -> Iterator[dict[str, Any]]:
        head = self._head("chatcmpl", "chat.completion.chunk")
        begun: set[int] = set()
        for delta in deltas:
            parts: list[dict[str, Any]] = []
            if delta.index not in begun:
                begun.add(delta.index)
                parts.append({"role": "assistant"})
            if delta.reasoning:
                parts.append({"reasoning_content": delta.reasoning})
            if delta.text:
                parts.append({"content": delta.text})
            if delta.tool_calls:
                parts.append({"tool_calls": [tool_part(each.index, each.name, each.arguments) for each in delta.tool_calls]})
            for part in parts:
                yield head | {"choices": [{"index": delta.index, "delta": part, "logprobs": None, "finish_reason": None}]}
            if delta.finish_reason:
                yield head | {"choices": [{"index": delta.index, "delta": {}, "logprobs": None, "finish_reason": delta.finish_reason}]}

    def create_embedding(self, input: str | Sequence[str], model: str | None = None) -> dict[str, Any]:
        """Vectors of length 1 in OpenAI's dictionary."""
        rows = self.model.embed(input).tolist()
        texts = [input] if isinstance(input, str) else input
        count = sum(len(self.model.tokenize(text)) for text in texts)
        return {"object": "list", "data": [{"object": "embedding", "embedding": row, "index": index} for index, row in enumerate(rows)],
                "model": model or self.model_path, "usage": {"prompt_tokens": count, "total_tokens": count}}

    def embed(self, input: str | Sequence[str]) -> Any:
        """A vector, or one for each text."""
        rows = self.model.embed(input).tolist()
        return rows[0] if isinstance(input, str) else rows

    def _params(self, options: Mapping[str, Any], max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        given = {name: value for name, value in options.items() if value is not None}
        given.pop("model", None)
        given.setdefault("seed", self.seed)
        # 0 and -1 are the rest of the context there.
        given["max_tokens"] = None if max_tokens is None or max_tokens <= 0 else max_tokens
        given["logprobs"] = logprobs
        if processors := given.pop("logits_processor", None):
            given["logits_processors"] = list(processors) if isinstance(processors, Sequence) else [processors]
        if grammar := given.pop("grammar", None):
            given["structured_outputs"] = grammar.structured_outputs
        if bias := given.get("logit_bias"):
            given["logit_bias"] = {int(token): value for token, value in bias.items()}
        try:
            return SamplingParams.of(**given)
        except TypeError as error:
            raise Error(f"an option that this package lacks: {error}") from None

    def _head(self, prefix: str, kind: str) -> dict[str, Any]:
        return {"id": f"{prefix}-{uuid.uuid4()}", "object": kind, "created": int(time.time()), "model": self.model_path}

    # The model.

    def reset(self) -> None:
        """Nothing: requests share what they begin with, and nothing else."""

    def set_cache(self, cache: Any) -> None:
        """Nothing: the model has a cache of prefixes."""

    def close(self) -> None:
        """Frees the model."""
        self.model.close()

    def __enter__(self) -> Llama:
        """Returns it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Frees the model."""
        self.close()


def usage_of(result: Result) -> dict[str, int]:
    """Numbers of tokens."""
    prompt, drawn = len(result.prompt_token_ids), sum(len(answer.token_ids) for answer in result.outputs)
    return {"prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": prompt + drawn}


def text_choice(answer: Completion, text: str) -> dict[str, Any]:
    """An answer as a choice of a completion."""
    logprobs = None
    if answer.logprobs is not None:
        drawn = [each[token] for token, each in zip(answer.token_ids, answer.logprobs)]
        logprobs = {"tokens": [each.decoded_token for each in drawn], "token_logprobs": [each.logprob for each in drawn],
                    "top_logprobs": [{other.decoded_token: other.logprob for other in each.values()} for each in answer.logprobs]}
    return {"text": text, "index": answer.index, "logprobs": logprobs, "finish_reason": answer.finish_reason}


def chat_logprobs(answer: Completion) -> dict[str, Any] | None:
    """Logs of probabilities as a chat has them."""
    if answer.logprobs is None:
        return None

    def token(each: Logprob) -> dict[str, Any]:
        return {"token": each.decoded_token, "logprob": each.logprob, "bytes": list(each.decoded_token.encode())}

    return {"content": [token(row[drawn]) | {"top_logprobs": [token(each) for each in row.values()]}
                        for drawn, row in zip(answer.token_ids, answer.logprobs)]}


def tool_part(index: int, name: str | None, arguments: str) -> dict[str, Any]:
    """A part of a call of a tool: the first one has the name."""
    if name is None:
        return {"index": index, "function": {"arguments": arguments}}
    return {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
