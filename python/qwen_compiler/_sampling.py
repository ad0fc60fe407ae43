"""How an answer is drawn."""
from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from . import _declarations as c
from ._errors import Error
from ._library import library, check, sized, texts_array
from ._fields import BeamFields, SamplerFields

# Gets the tokens of prompt and answer so far and the logits of the next token, and changes these in place or returns others.
# With NumPy the logits are an array of it, without NumPy one of ctypes.
LogitsProcessor = Callable[[list[int], Any], Any]

# Names of vLLM, llama-cpp-python and transformers, and what they are here.
ALIASES = {
    "repeat_penalty": "repetition_penalty",
    "mirostat_mode": "mirostat",
    "stopping_strings": "stop",
    "max_new_tokens": "max_tokens",
    "num_return_sequences": "n",
}


@dataclasses.dataclass(kw_only=True)
class SamplingParams(BeamFields, SamplerFields):
    """How answers are drawn, in vLLM's names. What is not given is what the model's authors recommend."""

    n: int = 1
    """Number of answers to each prompt."""
    max_tokens: int | None = 16
    """Maximum number of tokens; None is the rest of the context. A chat has this by default."""
    seed: int | None = None
    """Seed of the random numbers; None draws one, which the result has."""
    stop: str | Sequence[str] | None = None
    """Texts that end the answer. They do not count in reasoning and calls."""
    stop_token_ids: Sequence[int] | None = None
    """Tokens that end the answer."""
    ignore_eos: bool = False
    """Continue past the model's tokens that end an answer."""
    include_stop_str_in_output: bool = False
    """The stop string belongs to the text."""
    skip_special_tokens: bool = True
    """Special tokens have no text."""
    logprobs: int | None = None
    """Number of most likely tokens whose logs of probabilities the result has, beside those of the drawn ones."""
    prompt_logprobs: int | None = None
    """The same for the tokens of the prompt."""
    allowed_token_ids: Sequence[int] | None = None
    """The only tokens that may be drawn. Without a token that ends the answer, it has max_tokens."""
    thinking_token_budget: int | None = None
    """Maximum number of tokens of the reasoning, which ends then."""
    early_stopping: bool | Literal["never"] = False
    """When a beam search with as many answers as beams ends: at once, when no beam would be better now, or when none can become better."""
    logit_bias: dict[int, float] | None = None
    """Numbers that are added to the logits of tokens."""
    bad_words: Sequence[str] | None = None
    """Texts that the answer must not contain."""
    dry_sequence_breakers: Sequence[str] | None = None
    """Texts that DRY does not look past; None is newline, colon, quotation mark and asterisk."""
    samplers: Sequence[str] | None = None
    """Names of the samplers in their order; others are off."""
    structured_outputs: Mapping[str, Any] | None = None
    """What the answer keeps to, one of {"json": schema}, {"json_object": True}, {"regex": text}, {"choice": texts} and {"grammar": Lark or GBNF}."""
    priority: int = 0
    """Requests of a higher priority come first."""
    cache_salt: int = 0
    """Only requests with the same number share the prefix cache."""
    logits_processors: Sequence[LogitsProcessor] | None = None
    """Functions that change the logits before each draw. An exception ends that answer alone."""

    def __post_init__(self) -> None:
        """Refuses what no model takes."""
        if self.n < 1:
            raise Error(f"n is {self.n} when at least 1 is needed")
        if self.max_tokens is not None and self.max_tokens < 0:
            raise Error(f"max_tokens is {self.max_tokens} when at least 0 is needed")
        for name in ("logprobs", "prompt_logprobs", "thinking_token_budget"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise Error(f"{name} is {value} when at least 0 is needed")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise Error(f"seed is {self.seed} when 0 to {2**64 - 1} is needed")
        if self.top_k == -1:
            self.top_k = 0
        if self.thinking_token_budget is not None and self.logits_processors:
            raise Error("thinking_token_budget excludes logits_processors")
        if not self.is_search and (self.early_stopping or any(getattr(self, field.name) not in (None, 1) for field in dataclasses.fields(BeamFields))):
            raise Error("options of beams need num_beams")

    @classmethod
    def of(cls, **options: Any) -> SamplingParams:
        """The same by other programs' names (ALIASES). Raises TypeError for a name that nobody knows."""
        return cls(**{ALIASES.get(name, name): value for name, value in options.items()})

    @property
    def is_search(self) -> bool:
        """Whether it is a beam search."""
        return (self.num_beams or 1) > 1

    @property
    def stops(self) -> list[str]:
        """The stop strings."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or [])


@dataclasses.dataclass(kw_only=True)
class BeamSearchParams:
    """The options of vLLM's beam_search."""

    beam_width: int
    """Number of beams, and of answers."""
    max_tokens: int
    """Maximum number of tokens of an answer."""
    ignore_eos: bool = False
    """Continue past the model's tokens that end an answer."""
    length_penalty: float = 1.0
    """Exponent of the length by which the sum of an answer's log-probabilities is divided."""
    temperature: float = 0.0
    """Has no effect, because nothing is drawn."""

    @property
    def sampling_params(self) -> SamplingParams:
        """The same as options of a request."""
        search: dict[str, Any] = {} if self.beam_width == 1 else {"num_beams": self.beam_width, "n": self.beam_width, "length_penalty": self.length_penalty}
        return SamplingParams(max_tokens=self.max_tokens, ignore_eos=self.ignore_eos, temperature=0, logprobs=0, **search)


def native_beams(params: SamplingParams) -> Any:
    """A beam search for C."""
    beams = sized(c.qwen_beams, answers=params.n, early_stopping=c.QWEN_EARLY_STOPPING_NEVER if params.early_stopping == "never" else params.early_stopping,
                  length_penalty=1)
    for field in dataclasses.fields(BeamFields):
        value = getattr(params, field.name)
        if value is not None:
            setattr(beams, field.name, value)
    return beams


def native_sampling(model: int, params: SamplingParams, seed: int) -> Any:
    """The options for C. The struct keeps the memory to which it points."""
    sampling = sized(c.qwen_sampling)
    check(library().qwen_default_sampling(model, ctypes.byref(sampling)))
    for field in dataclasses.fields(SamplerFields):
        value = getattr(params, field.name)
        if value is not None:
            setattr(sampling, field.name, value)
    sampling.seed = seed
    if params.logit_bias:
        sampling.logit_bias_count = len(params.logit_bias)
        sampling.logit_bias = (c.qwen_bias * len(params.logit_bias))(*[c.qwen_bias(token, bias) for token, bias in params.logit_bias.items()])
    for name, texts in (("bad_word", params.bad_words), ("dry_sequence_breaker", params.dry_sequence_breakers), ("sampler", params.samplers)):
        if texts is not None:
            setattr(sampling, name + "s", texts_array(texts))
            setattr(sampling, name + "_count", len(texts))
    return sampling
