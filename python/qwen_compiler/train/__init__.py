"""Training at the precision of the engine: the loss sees the integers that a compiled model has (docs/training.md). Needs PyTorch and
transformers: pip install 'qwen_compiler[train]'.

    model = qwen_compiler.train.prepare(transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
    ...                                              # any loop over the model's own parameters
    qwen_compiler.train.save(model, "trained")       # qwen-opt keeps its integers

The command is qwen-train.
"""
from ._functions import round_activations, round_weights
from ._prepare import METHODS, prepare, save

__all__ = ["METHODS", "prepare", "round_activations", "round_weights", "save"]
