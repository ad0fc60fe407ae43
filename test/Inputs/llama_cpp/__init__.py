"""In the place of llama-cpp-python: its class is this package's, its types of messages are dictionaries."""
from qwen_compiler.llama import Llama  # noqa: F401


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(name)
    return dict
