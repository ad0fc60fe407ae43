"""A model in the process."""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import math
import os
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypedDict, overload

from . import _declarations as c
from . import _running
from ._answers import BeamSearchOutput, BeamSearchSequence, Delta, Result
from ._calls import Calls, Tool
from ._errors import Error
from ._flight import Task
from ._grammar import structured_outputs_of
from ._handle import Handle
from ._library import all_bytes, all_ids, check, encoded, ids_array, library, sized, texts_array
from ._messages import Message, template_messages
from ._processors import numpy
from ._programs import cached_file
from ._rows import Rows
from ._sampling import BeamSearchParams, SamplingParams


class TokensPrompt(TypedDict):
    """A prompt of token ids, as vLLM names it."""

    prompt_token_ids: Sequence[int]


class TextPrompt(TypedDict):
    """A prompt of text, as vLLM names it."""

    prompt: str


Prompt = str | Sequence[int] | TokensPrompt | TextPrompt
Params = SamplingParams | Sequence[SamplingParams] | None
# One, or several.
Conversations = Sequence[Message] | Sequence[Sequence[Message]]
# Options whose values have words: the enumerators behind a prefix.
WORDS = {name: {word.removeprefix(prefix).lower(): value for word, value in vars(c).items() if word.startswith(prefix)}
         for name, prefix in (("check", "QWEN_CHECK_"), ("speculate", "QWEN_SPECULATE_"))}
# Answers at once, if load gets no other number. Memory of the cache of keys and values is taken where it is used.
SEQUENCES = 8


def load(model: str | os.PathLike[str], **options: Any) -> Model:
    """Loads a model: a compiled file, the folder of a checkpoint, a GGUF file, or a name in Hugging Face's cache.

    What is not compiled is compiled into the cache of `qwen-run`, once. `options` are those of `qwen-run`: threads, sequences (answers at
    once, 8 by default), kv_pages, check ("background", "now" or "off"), lock, max_memory in bytes, chat_template (Jinja), speculate ("off", "auto", ...), draft_model (a
    compiled file) and others of qwen_options in qwenrt.h,
    and options of the compile such as weights="q4_0". Raises Error with the line that `qwen-run` would print.
    """
    path = os.fspath(model)
    # Threads are shared by models with the same number of them.
    engine = {field[0] for field in c.qwen_options._fields_} - {"size", "pool"}
    given = {name: options.pop(name) for name in list(options) if name in engine}
    if options or not is_compiled(path):
        path = cached_file(path, options)
    given.setdefault("sequences", SEQUENCES)
    for name, words in WORDS.items():
        if name in given and given[name] not in words:
            raise Error(f"{name} is {given[name]!r} when one of {', '.join(words)} is needed")
        given[name] = words[given.get(name, next(iter(words)))]
    for name in ("chat_template", "draft_model"):
        if name in given:
            given[name] = texts_array([given[name]])[0]
    try:
        return Model(Handle(path, sized(c.qwen_options, **given)))
    except TypeError as error:
        raise Error(f"an option of the model has a wrong type: {error}") from None


def is_compiled(path: str) -> bool:
    """Whether it is a file and no GGUF file."""
    try:
        with open(path, "rb") as file:
            return file.read(4) != b"GGUF"
    except OSError:
        return False


class Model:
    """A model that `load` made. Threads and tasks of asyncio may use it at once: each answer is the one that it would be alone.

    A model is closed by `close`, at the end of a `with`, with its last reference, or with the program.
    """

    def __init__(self, handle: Handle) -> None:
        """For `load`."""
        self._handle = handle
        # The handle closes itself when the program ends.
        weakref.finalize(self, handle.finalize).atexit = False
        with handle.use() as native:
            self.vocab_size: int = library().qwen_vocab_size(native)
            """Number of token ids."""
            self.context_size: int = library().qwen_context_size(native)
            """Maximum number of tokens of prompt and answer."""
            self.info: dict[str, Any] = json.loads(all_bytes(library().qwen_model_info, native))
            """The manifest (docs/artifact.md): architecture, shapes, formats and defaults."""
            self.end_tokens: list[int] = all_ids(library().qwen_end_tokens, native, 0)
            """The tokens that end an answer."""
        self.begin_token: int | None = self.info.get("generation", {}).get("bos_token_id")
        """The token that begins a text, if the model has one."""

    @property
    def path(self) -> str:
        """The compiled file."""
        return self._handle.path

    @property
    def closed(self) -> bool:
        """Whether the model is closed."""
        return self._handle.closed

    def close(self) -> None:
        """Ends all answers and frees the model. Does nothing if it is closed."""
        self._handle.close()

    def __enter__(self) -> Model:
        """Returns the model."""
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        """Closes the model."""
        self.close()

    def __repr__(self) -> str:
        """The model's file."""
        return f"<qwen_compiler.Model {self.path}{' (closed)' if self.closed else ''}>"

    # Text and tokens.

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        """The token ids of a text. Without `special`, names of special tokens are ordinary text."""
        data = encoded(text)
        with self._handle.use() as native:
            return all_ids(library().qwen_tokenize, native, data, len(data), c.QWEN_ALLOW_SPECIAL if special else 0)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of token ids. Bytes that are no character become U+FFFD."""
        return self.detokenize_bytes(ids).decode(errors="replace")

    def detokenize_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of token ids."""
        array = ids_array(ids)
        with self._handle.use() as native:
            return all_bytes(library().qwen_detokenize, native, array, len(array))

    def token_id(self, name: str) -> int:
        """The id of an added token, such as "<|im_end|>". Raises Error if there is none."""
        with self._handle.use() as native:
            return int(check(library().qwen_token_id(native, texts_array([name])[0])))

    def apply_chat_template(self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] | None = None, **variables: Any) -> str:
        """The text of a conversation by the model's chat template, whose other `variables` may be given, as `chat` makes it: system messages at the
        front become one, and a later one that the template does not write becomes a message of the user."""
        data = self._variables(messages, tools, variables)
        with self._handle.use() as native:
            turns = all_bytes(library().qwen_chat_turns, native, data, len(data))
            return all_bytes(library().qwen_render_chat, native, turns, len(turns)).decode()

    def render(self, template: str, messages: Sequence[Message] = (), **variables: Any) -> str:
        """The text of a conversation by another chat template, in Jinja."""
        data = self._variables(messages, None, variables)
        with self._handle.use() as native, self._template(native, template) as read:
            return all_bytes(library().qwen_template_render, read, data, len(data)).decode()

    @contextlib.contextmanager
    def _template(self, native: int, text: str) -> Iterator[int]:
        """Another chat template."""
        source = encoded(text)
        read = check(library().qwen_template_new(native, source, len(source)))
        try:
            yield read
        finally:
            library().qwen_template_free(read)

    def _variables(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, variables: Mapping[str, Any]) -> bytes:
        given = {"messages": template_messages(messages), **variables}
        if tools:
            given["tools"] = list(tools)
        return json.dumps(given).encode()

    # Answers.

    @overload
    def generate(self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None, *, stream: Literal[False] = False) -> list[Result]: ...

    @overload
    def generate(self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None, *, stream: Literal[True]) -> Iterator[Delta]: ...

    def generate(self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None, *, stream: bool = False) -> list[Result] | Iterator[Delta]:
        """Continues a prompt or many, and returns their results in the order of the prompts; with `stream`, parts of answers as they come.

        A prompt is a text or token ids. `sampling_params` are those of all prompts, or one for each. All answers run at once, as many as the
        model has sequences. Raises AnswerError if an answer failed; the others go on to their ends.
        """
        tasks = self._text_tasks(prompts, sampling_params)
        return _running.stream(self._handle, tasks) if stream else _running.generate(self._handle, tasks)

    @overload
    def agenerate(self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None, *,
                  stream: Literal[False] = False) -> Coroutine[Any, Any, list[Result]]: ...

    @overload
    def agenerate(self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None, *, stream: Literal[True]) -> AsyncIterator[Delta]: ...

    def agenerate(self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None, *,
                  stream: bool = False) -> Coroutine[Any, Any, list[Result]] | AsyncIterator[Delta]:
        """`generate` for asyncio: to be awaited, or with `stream` an asynchronous iterator. A task that is cancelled ends its answers."""
        tasks = self._text_tasks(prompts, sampling_params)
        return _running.astream(self._handle, tasks) if stream else _running.agenerate(self._handle, tasks)

    def beam_search(self, prompts: Prompt | Sequence[Prompt], params: BeamSearchParams) -> list[BeamSearchOutput]:
        """The most likely answers to each prompt, in vLLM's form. `generate` with num_beams has more options (docs/beams.md)."""
        outputs = []
        for result in self.generate(prompts, params.sampling_params):
            front = self.detokenize(result.prompt_token_ids) if result.prompt is None else result.prompt
            outputs.append(BeamSearchOutput([BeamSearchSequence([*result.prompt_token_ids, *answer.token_ids], answer.logprobs or [],
                                                                answer.cumulative_logprob or 0.0, front + answer.text, answer.finish_reason,
                                                                answer.stop_reason) for answer in result.outputs]))
        return outputs

    @overload
    def chat(self, messages: Sequence[Message], sampling_params: Params = None, *, tools: Sequence[Tool] | None = None,
             tool_choice: str | Mapping[str, Any] | None = None, parallel_tool_calls: bool = True, response_format: Mapping[str, Any] | None = None,
             stream: Literal[False] = False, **variables: Any) -> Result: ...

    @overload
    def chat(self, messages: Sequence[Sequence[Message]], sampling_params: Params = None, *, tools: Sequence[Tool] | None = None,
             tool_choice: str | Mapping[str, Any] | None = None, parallel_tool_calls: bool = True, response_format: Mapping[str, Any] | None = None,
             stream: Literal[False] = False, **variables: Any) -> list[Result]: ...

    @overload
    def chat(self, messages: Conversations, sampling_params: Params = None, *, tools: Sequence[Tool] | None = None,
             tool_choice: str | Mapping[str, Any] | None = None, parallel_tool_calls: bool = True, response_format: Mapping[str, Any] | None = None,
             stream: Literal[True], **variables: Any) -> Iterator[Delta]: ...

    def chat(self, messages: Conversations, sampling_params: Params = None, *, tools: Sequence[Tool] | None = None,
             tool_choice: str | Mapping[str, Any] | None = None, parallel_tool_calls: bool = True, response_format: Mapping[str, Any] | None = None,
             stream: bool = False, **variables: Any) -> Result | list[Result] | Iterator[Delta]:
        """Answers a conversation, or many of them; with `stream`, returns parts of the answers as they come.

        `messages`, `tools`, `tool_choice`, `parallel_tool_calls` and `response_format` have OpenAI's form. A required or named choice, a single call and a
        strict tool are kept by a grammar. `variables` are those of the chat template, such as enable_thinking=False, also as chat_template_kwargs;
        continue_final_message=True goes on with the last message, and chat_template is another template. Without `sampling_params` an answer
        may have the rest of the context.
        """
        tasks, many = self._chat_tasks(messages, sampling_params, Calls(tools, tool_choice, parallel_tool_calls), response_format, variables)
        if stream:
            return _running.stream(self._handle, tasks)
        results = _running.generate(self._handle, tasks)
        return results if many else results[0]

    @overload
    def achat(self, messages: Sequence[Message], sampling_params: Params = None, *, tools: Sequence[Tool] | None = None,
              tool_choice: str | Mapping[str, Any] | None = None, parallel_tool_calls: bool = True, response_format: Mapping[str, Any] | None = None,
              stream: Literal[False] = False, **variables: Any) -> Coroutine[Any, Any, Result]: ...

    @overload
    def achat(self, messages: Sequence[Sequence[Message]], sampling_params: Params = None, *, tools: Sequence[Tool] | None = None,
              tool_choice: str | Mapping[str, Any] | None = None, parallel_tool_calls: bool = True, response_format: Mapping[str, Any] | None = None,
              stream: Literal[False] = False, **variables: Any) -> Coroutine[Any, Any, list[Result]]: ...

    @overload
    def achat(self, messages: Conversations, sampling_params: Params = None, *, tools: Sequence[Tool] | None = None,
              tool_choice: str | Mapping[str, Any] | None = None, parallel_tool_calls: bool = True, response_format: Mapping[str, Any] | None = None,
              stream: Literal[True], **variables: Any) -> AsyncIterator[Delta]: ...

    def achat(self, messages: Conversations, sampling_params: Params = None, *, tools: Sequence[Tool] | None = None,
              tool_choice: str | Mapping[str, Any] | None = None, parallel_tool_calls: bool = True, response_format: Mapping[str, Any] | None = None,
              stream: bool = False, **variables: Any) -> Coroutine[Any, Any, Result] | Coroutine[Any, Any, list[Result]] | AsyncIterator[Delta]:
        """`chat` for asyncio: to be awaited, or with `stream` an asynchronous iterator."""
        tasks, many = self._chat_tasks(messages, sampling_params, Calls(tools, tool_choice, parallel_tool_calls), response_format, variables)
        if stream:
            return _running.astream(self._handle, tasks)

        async def first() -> Result:
            return (await _running.agenerate(self._handle, tasks))[0]

        return _running.agenerate(self._handle, tasks) if many else first()

    # Rows of prompts.

    def logits(self, ids: Sequence[int]) -> Any:
        """The logits behind each token, [len(ids), vocab_size] in float32, as `qwen-run logits` writes them: an array of NumPy, or without
        NumPy a memoryview."""
        self._require_logits()
        row, = _running.rows(self._handle, [(list(ids), len(ids))], c.QWEN_WANT_LOGITS, self.vocab_size)
        return row.array()

    def _require_logits(self) -> None:
        """Raises Error if the rows of the model are something else."""
        kind = self.info["model"].get("output", "logits")
        if kind != "logits":
            raise Error(f"the model of {self.path} has no logits, but {kind}")

    def embed(self, texts: str | Sequence[str], *, instruction: str | None = None, dim: int | None = None) -> Any:
        """A vector of length 1 for each text, [len(texts), dim] in float32, as `qwen-run embed` writes them.

        Queries of Qwen3-Embedding need `instruction`. `dim` is the number of first values that are kept.
        """
        prompts, hidden, vectors = self._embedding(texts, instruction, dim)
        for index, rows in enumerate(_running.rows(self._handle, prompts, c.QWEN_WANT_HIDDEN, hidden)):
            vectors.put(index, rows)
        return vectors.array()

    async def aembed(self, texts: str | Sequence[str], *, instruction: str | None = None, dim: int | None = None) -> Any:
        """`embed` for asyncio."""
        prompts, hidden, vectors = self._embedding(texts, instruction, dim)
        index = 0
        async for rows in _running.arows(self._handle, prompts, c.QWEN_WANT_HIDDEN, hidden):
            vectors.put(index, rows)
            index += 1
        return vectors.array()

    def _embedding(self, texts: str | Sequence[str], instruction: str | None, dim: int | None) -> tuple[list[tuple[list[int], int]], int, Vectors]:
        """The prompts of texts, the width of their rows, and memory for the vectors."""
        given = [texts] if isinstance(texts, str) else list(texts)
        with self._handle.use() as native:
            hidden: int = library().qwen_hidden_size(native)
            prompts = [(all_ids(library().qwen_encode_embedding, native, data, len(data)), 1)
                       for data in (encoded(text if instruction is None else f"Instruct: {instruction}\nQuery:{text}") for text in given)]
        size = hidden if dim is None else dim
        if not 0 < size <= hidden:
            raise Error(f"dim is {dim} when 1 to {hidden} is needed")
        return prompts, hidden, Vectors(len(given), size)

    def rerank(self, query: str, documents: Sequence[str], *, instruction: str | None = None) -> list[float]:
        """How well each document answers the query, from 0 to 1, as `qwen-run rerank` says. `instruction` says what to look for."""
        prompts = self._rerank_prompts(query, documents, instruction)
        return [self._rerank_score(rows) for rows in _running.rows(self._handle, prompts, c.QWEN_WANT_LOGITS, self.vocab_size)]

    async def arerank(self, query: str, documents: Sequence[str], *, instruction: str | None = None) -> list[float]:
        """`rerank` for asyncio."""
        prompts = self._rerank_prompts(query, documents, instruction)
        return [self._rerank_score(rows) async for rows in _running.arows(self._handle, prompts, c.QWEN_WANT_LOGITS, self.vocab_size)]

    def _rerank_prompts(self, query: str, documents: Sequence[str], instruction: str | None) -> list[tuple[list[int], int]]:
        texts = [None if instruction is None else texts_array([instruction])[0], texts_array([query])[0]]
        with self._handle.use() as native:
            return [(all_ids(library().qwen_encode_rerank, native, *texts, document), 1) for document in texts_array(documents)]

    def _rerank_score(self, rows: Rows) -> float:
        score = ctypes.c_float()
        with self._handle.use() as native:
            check(library().qwen_rerank_score(native, rows.row(0), ctypes.byref(score)))
        return score.value

    def loglikelihoods(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[float, bool]]:
        """For each pair of a context and its continuation, both token ids: the log of the continuation's probability, the sum of float32
        numbers as in `qwen-run eval`, and whether each of its tokens is the most likely one."""
        self._require_logits()
        for context, continuation in pairs:
            if not context or not continuation:
                raise Error("a log-likelihood needs a token of context and one of continuation")
        prompts = (([*context, *continuation[:-1]], len(continuation)) for context, continuation in pairs)
        return [(sum(rows.logprobs(continuation)), rows.greatest() == list(continuation))
                for (_, continuation), rows in zip(pairs, _running.rows(self._handle, prompts, c.QWEN_WANT_LOGITS, self.vocab_size))]

    def perplexity(self, text: str, *, window: int | None = None, stride: int | None = None) -> float:
        """The perplexity of a text, the number of `qwen-run perplexity`, whose help defines it. `window` is the context by default, `stride` the window, at most 512."""
        self._require_logits()
        ids = self.tokenize(text)
        window = self.context_size if window is None else window
        stride = min(window, 512) if stride is None else stride
        if not 2 <= window <= self.context_size or not 1 <= stride <= window:
            raise Error(f"the window is {window} and the stride {stride} when 2 to {self.context_size}, and 1 to the window, are needed")
        if len(ids) < 2:
            raise Error(f"the text has {len(ids)} tokens when at least 2 are needed")
        total, scored, seen = 0.0, 0, 0
        for begin in range(0, len(ids), stride):
            end, first = min(begin + window, len(ids)), max(seen, begin + 1)
            if first < end:
                total += _running.surprise(self._handle, ids[begin:end], end - first)
                scored += end - first
            seen = end
            if end == len(ids):
                break
        return math.exp(total / scored)

    def _text_tasks(self, prompts: Prompt | Sequence[Prompt], params: Params) -> list[Task]:
        given = prompt_list(prompts)
        each = params_list(params or SamplingParams(), len(given), "prompts")
        return [Task(i, *self._prompt(prompt), self.end_tokens, of) for i, (prompt, of) in enumerate(zip(given, each))]

    def _prompt(self, prompt: Prompt) -> tuple[str | None, list[int]]:
        """Text and ids of a prompt. An empty one is the token that begins a text, if the model has it."""
        given: Any = prompt
        if isinstance(given, Mapping):
            given = given["prompt_token_ids"] if "prompt_token_ids" in given else given["prompt"]
        text = given if isinstance(given, str) else None
        ids = [int(each) for each in given] if text is None else self.tokenize(text)
        return text, ids or ([self.begin_token] if self.begin_token is not None else [])

    def _chat_tasks(self, messages: Conversations, params: Params, calls: Calls, response_format: Mapping[str, Any] | None,
                    variables: Mapping[str, Any]) -> tuple[list[Task], bool]:
        """A task for each conversation, and whether there may be several."""
        given: Any = messages
        many = bool(given) and not isinstance(given[0], Mapping)
        conversations = list(given) if many else [given]
        each = params_list(params or SamplingParams(max_tokens=None), len(conversations), "conversations")
        rest = {**variables, **(variables.get("chat_template_kwargs") or {})}
        return [self._chat_task(number, conversation, of, calls, response_format, rest)
                for number, (conversation, of) in enumerate(zip(conversations, each))], many

    def _chat_task(self, number: int, messages: Sequence[Message], params: SamplingParams, calls: Calls, response_format: Mapping[str, Any] | None,
                   variables: dict[str, Any]) -> Task:
        if response_format:
            params = dataclasses.replace(params, structured_outputs=structured_outputs_of(response_format))
        rest = {name: value for name, value in variables.items() if name not in ("chat_template_kwargs", "chat_template", "continue_final_message")}
        flags = 0
        if variables.get("continue_final_message"):
            flags, rest["add_generation_prompt"] = c.QWEN_CONTINUE_MESSAGE, False
        data = self._variables(messages, calls.shown, rest)
        with self._handle.use() as native:
            if variables.get("chat_template"):
                with self._template(native, variables["chat_template"]) as template:
                    ids = all_ids(library().qwen_template_encode, template, data, len(data), flags)
            else:
                data = all_bytes(library().qwen_chat_turns, native, data, len(data))
                ids = all_ids(library().qwen_encode_chat, native, data, len(data), flags)
            ends = all_ids(library().qwen_end_tokens, native, 1)
        return Task(number, None, ids, ends, params, chat=True, calls=calls, reasons=rest.get("enable_thinking") is not False)


class Vectors:
    """Embeddings."""

    def __init__(self, count: int, size: int) -> None:
        """Memory for `count` vectors."""
        self.count, self.size = count, size
        self.memory = (ctypes.c_float * (size * count))()

    def put(self, index: int, rows: Rows) -> None:
        """Writes the vector that a row of hidden values makes."""
        target = ctypes.cast(ctypes.byref(self.memory, index * self.size * 4), ctypes.POINTER(ctypes.c_float))
        check(library().qwen_embedding(rows.row(0), self.size, target))

    def array(self) -> Any:
        """[count, size] as an array of NumPy, or without NumPy as a memoryview."""
        if module := numpy():
            return module.ctypeslib.as_array(self.memory).reshape(self.count, self.size)
        return memoryview(self.memory).cast("B").cast("f", (self.count, self.size))


def params_list(params: SamplingParams | Sequence[SamplingParams], count: int, what: str) -> list[SamplingParams]:
    """Options of all of `count`, or of each."""
    each = [params] * count if isinstance(params, SamplingParams) else list(params)
    if len(each) != count:
        raise Error(f"there are {len(each)} params for {count} {what}")
    return each


def prompt_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt, or many, as a list."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    given = list(prompts)
    if given and not isinstance(given[0], (str, Mapping, Sequence)):
        return [given]  # type: ignore[list-item]
    return given  # type: ignore[return-value]
