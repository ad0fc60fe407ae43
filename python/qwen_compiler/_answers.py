"""What a model returns."""
from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class Logprob:
    """The log of a token's probability, from the raw logits."""

    logprob: float
    rank: int | None = None
    """1 is the most likely token; None if it is not one of those that were asked for."""
    decoded_token: str = ""


@dataclasses.dataclass
class ToolCall:
    """A call of a tool. Its arguments are JSON if `complete`; else the call must not run."""

    name: str
    arguments: str = ""
    complete: bool = False
    id: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The call as OpenAI writes it."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclasses.dataclass
class Completion:
    """An answer."""

    index: int
    """Its number among the `n` answers to its prompt."""
    text: str = ""
    token_ids: list[int] = dataclasses.field(default_factory=list)
    """All drawn tokens, with the one that ended the answer."""
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    """For each token: the drawn one and the most likely ones, if they were asked for."""
    finish_reason: str | None = None
    """"stop", "length", "tool_calls", "abort" (cancelled) or "error"."""
    stop_reason: int | str | None = None
    """The stop string or the token of stop_token_ids that ended the answer."""
    seed: int = 0
    """The seed that draws this answer again."""
    reasoning: str = ""
    """What a chat model thinks before its answer."""
    tool_calls: list[ToolCall] = dataclasses.field(default_factory=list)
    score: float | None = None
    """Of a beam search: the sum of the logs of probabilities, divided by a power of the length."""
    error: BaseException | None = None
    """Why the answer failed, with the traceback of a logits processor."""

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message of a chat."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        return message


@dataclasses.dataclass
class Result:
    """The answers to a prompt. The properties are those of the first answer."""

    prompt: str | None
    """None if the prompt was token ids."""
    prompt_token_ids: list[int]
    outputs: list[Completion]
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    """For each token of the prompt but the first, which has None."""
    num_cached_tokens: int = 0
    """Tokens of the prompt that an earlier request had run."""
    finished: bool = True

    @property
    def text(self) -> str:
        """The text."""
        return self.outputs[0].text

    @property
    def token_ids(self) -> list[int]:
        """The drawn tokens."""
        return self.outputs[0].token_ids

    @property
    def logprobs(self) -> list[dict[int, Logprob]] | None:
        """The logs of probabilities."""
        return self.outputs[0].logprobs

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended."""
        return self.outputs[0].finish_reason

    @property
    def seed(self) -> int:
        """The seed."""
        return self.outputs[0].seed

    @property
    def reasoning(self) -> str:
        """What a chat model thinks before its answer."""
        return self.outputs[0].reasoning

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls of tools."""
        return self.outputs[0].tool_calls

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message of a chat."""
        return self.outputs[0].message


@dataclasses.dataclass
class BeamSearchSequence:
    """An answer of `beam_search`, with its prompt."""

    tokens: list[int]
    """The tokens of prompt and answer."""
    logprobs: list[dict[int, Logprob]]
    """Of the tokens of the answer."""
    cum_logprob: float
    """Their sum."""
    text: str
    """The text of all tokens."""
    finish_reason: str | None = None
    """"stop" or "length"."""
    stop_reason: int | str | None = None
    """The token of stop_token_ids that ended the answer."""


@dataclasses.dataclass
class BeamSearchOutput:
    """The answers of `beam_search` to a prompt."""

    sequences: list[BeamSearchSequence]
    """The best first."""


@dataclasses.dataclass
class ToolDelta:
    """A part of the call with number `index`: its name comes once, before its arguments."""

    index: int
    name: str | None = None
    arguments: str = ""


@dataclasses.dataclass
class Delta:
    """A part of an answer. Joined, the parts are the answer."""

    prompt_index: int
    """The number of the prompt."""
    index: int
    """The number of the answer to the prompt."""
    text: str = ""
    token_ids: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[dict[int, Logprob]] | None = None
    reasoning: str = ""
    tool_calls: list[ToolDelta] = dataclasses.field(default_factory=list)
    finish_reason: str | None = None
    """Only the last part has it."""
    stop_reason: int | str | None = None
