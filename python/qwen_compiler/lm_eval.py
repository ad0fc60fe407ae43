"""The model of lm-evaluation-harness 0.4.13: its name is "qwen_compiler".

    python -m qwen_compiler.lm_eval --model qwen_compiler --model_args pretrained=MODEL --tasks arc_easy

Log-likelihoods are those of `qwen-run eval` and of the server.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

# lm-eval has no types.
from lm_eval import utils  # type: ignore
from lm_eval.api.model import TemplateLM  # type: ignore
from lm_eval.api.registry import register_model  # type: ignore

from . import Prompt, SamplingParams, load


@register_model("qwen_compiler")
class QwenCompilerLM(TemplateLM):  # type: ignore
    """A model in the process."""

    def __init__(self, pretrained: str, max_length: int | None = None, max_gen_toks: int = 256, batch_size: Any = None, device: Any = None,
                 **options: Any) -> None:
        """`pretrained` is what `load` takes, and so are `options`. The scheduler makes batches, so `batch_size` changes nothing."""
        super().__init__()
        self.model = load(pretrained, **options)
        self.max_length = max_length or self.model.context_size
        self.max_gen_toks = max_gen_toks

    @property
    def eot_token_id(self) -> int:
        """The token that ends an answer."""
        return self.model.end_tokens[0]

    @property
    def prefix_token_id(self) -> int:
        """What comes before a text without a context: the tokenizer's bos_token, else its eos_token."""
        token, = self.model.tokenize(self.model.render("{{ bos_token or eos_token }}"))
        return token

    @property
    def tokenizer_name(self) -> str:
        """The name under which lm-eval caches requests."""
        return os.path.basename(self.model.path)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """The token ids of a text."""
        return self.model.tokenize(string)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The compiled file has one template."""
        return self.tokenizer_name

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The text of a conversation."""
        return self.model.apply_chat_template(chat_history, add_generation_prompt=add_generation_prompt)

    def _loglikelihood_tokens(self, requests: Sequence[Any], disable_tqdm: bool = False, **kwargs: Any) -> list[tuple[float, bool]]:
        pairs = []
        for _, context, continuation in requests:
            # The model reads all tokens but the last.
            kept = max(self.max_length + 1 - len(continuation), 1)
            pairs.append((context[-kept:], continuation[-self.max_length:]))
        results = self.model.loglikelihoods(pairs)
        for (request, _, _), result in zip(requests, results):
            if request is not None:
                self.cache_hook.add_partial("loglikelihood", request, result)
        return results

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of each text, in windows of the longest text."""
        results = []
        for request in requests:
            text, = request.args
            windows = utils.get_rolling_token_windows(token_list=self.tok_encode(text), prefix_token=self.prefix_token_id, max_seq_len=self.max_length,
                                                      context_len=1)
            pairs = [utils.make_disjoint_window(window) for window in windows]
            results.append(sum(score for score, _ in self.model.loglikelihoods(pairs)))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), results[-1])
        return results

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Continues each text up to a stop string; greedily, unless the task says otherwise."""
        prompts: list[Prompt] = []
        params = []
        for request in requests:
            text, options = request.args
            options = dict(options)
            stops = options.pop("until", None) or []
            tokens = int(options.pop("max_gen_toks", self.max_gen_toks))
            sample = options.pop("do_sample", options.get("temperature", 0) != 0)
            temperature = options.pop("temperature", 1.0) if sample else 0.0
            prompts.append({"prompt_token_ids": self.tok_encode(text)[tokens - self.max_length:]})
            params.append(SamplingParams.of(max_tokens=tokens, stop=stops, temperature=temperature, seed=options.pop("seed", 1234), **options))
        texts = [result.text for result in self.model.generate(prompts, params)]
        for request, answer in zip(requests, texts):
            self.cache_hook.add_partial("generate_until", request.args, answer)
        return texts


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate  # type: ignore
    cli_evaluate()
