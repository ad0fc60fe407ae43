"""Qwen models in the process, compiled for this CPU, with the bits of the command line (docs/python.md).

    import qwen_compiler
    with qwen_compiler.load("Qwen2.5-0.5B-Instruct") as model:
        print(model.generate("The sea is", qwen_compiler.SamplingParams(seed=7, max_tokens=50))[0].text)
"""
from ._answers import BeamSearchOutput, BeamSearchSequence, Completion, Delta, Logprob, Result, ToolCall, ToolDelta
from ._errors import AnswerError, ClosedError, Error
from ._model import Model, Prompt, TextPrompt, TokensPrompt, load
from ._programs import compile
from ._sampling import BeamSearchParams, LogitsProcessor, SamplingParams
from ._version import __version__

__all__ = ["AnswerError", "BeamSearchOutput", "BeamSearchParams", "BeamSearchSequence", "ClosedError", "Completion", "Delta", "Error", "LogitsProcessor", "Logprob", "Model", "Prompt",
           "Result", "SamplingParams", "TextPrompt", "TokensPrompt", "ToolCall", "ToolDelta", "__version__", "compile", "load"]
