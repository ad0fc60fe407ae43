"""libqwenrt, as ctypes calls it."""
from __future__ import annotations

import ctypes
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from . import _declarations as c
from ._errors import Error

FOLDER = pathlib.Path(__file__).resolve().parent


_loaded: list[ctypes.CDLL] = []


def library() -> ctypes.CDLL:
    """The library of this package with the types of its functions. Calls release the interpreter lock."""
    if not _loaded:
        _loaded.append(_load())
    return _loaded[0]


def _load() -> ctypes.CDLL:
    path = FOLDER / "lib" / "libqwenrt.so"
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        hint = "; its folder must not be mounted with noexec" if "failed to map segment" in str(error) else ""
        raise Error(f"cannot load the library: {error}{hint}") from None
    for name, (result, arguments) in c.FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    return loaded


class HeldLibrary:
    """Short functions that keep the interpreter lock, for a thread that has it and would wait to get it back. Pointers are addresses."""

    def __init__(self) -> None:
        address = ctypes.c_void_p
        sample = ctypes.PYFUNCTYPE(ctypes.c_int32, address, address, ctypes.c_int64)
        self.sample: Callable[[int, int, int], int] = sample(("qwen_sample", library()))
        """qwen_sample."""
        copy = ctypes.PYFUNCTYPE(address, address, address, ctypes.c_size_t)
        self.copy: Callable[[int, Any, int], object] = copy(("memcpy", library()))
        """memcpy."""


_held: list[HeldLibrary] = []


def held_library() -> HeldLibrary:
    """The only one."""
    if not _held:
        _held.append(HeldLibrary())
    return _held[0]


def last_error(code: int = -1) -> Error:
    """The error of the last call of this thread."""
    return Error(library().qwen_last_error().decode(errors="replace"), code)


def check(result: Any) -> Any:
    """Returns what a function returned, or raises the error of the call."""
    if result is None:
        raise last_error()
    if result < 0:
        raise last_error(result)
    return result


def ids_array(ids: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
    """Token ids for C. Raises Error for what is no id."""
    try:
        array = (ctypes.c_int32 * len(ids))(*ids)
    except TypeError as error:
        raise Error(f"a prompt of token ids has something else: {error}") from None
    # ctypes cuts what does not fit.
    for given, stored in zip(ids, array):
        if given != stored:
            raise Error(f"the token id {given} is not in the vocabulary", c.QWEN_ERROR_INVALID_TOKEN)
    return array


def texts_array(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    """Texts for C, each with a zero at its end. Raises Error for a text with a zero."""
    for text in texts:
        if "\0" in text:
            raise Error("a text has a zero character")
    return (ctypes.c_char_p * len(texts))(*[encoded(text) for text in texts])


def encoded(text: str) -> bytes:
    """UTF-8. Half of a surrogate pair becomes a replacement character."""
    return text.encode("utf-8", errors="replace") if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def all_ids(function: Callable[..., int], *arguments: Any) -> list[int]:
    """The ids that a function writes to its last two arguments, an array and its capacity."""
    # Most texts need one call.
    array = (ctypes.c_int32 * 512)()
    count = check(function(*arguments, array, len(array)))
    if count > len(array):
        array = (ctypes.c_int32 * count)()
        check(function(*arguments, array, count))
    return array[:count]


def all_bytes(function: Callable[..., int], *arguments: Any) -> bytes:
    """The same for bytes."""
    text = ctypes.create_string_buffer(512)
    count = check(function(*arguments, text, len(text)))
    if count > len(text):
        text = ctypes.create_string_buffer(count)
        check(function(*arguments, text, count))
    return text.raw[:count]


def sized(struct: type[Any], **members: Any) -> Any:
    """A struct whose first member is its size."""
    return struct(size=ctypes.sizeof(struct), **members)
