#!/usr/bin/env python3
"""Several answers at once from Python, by ctypes and the scheduler of the C interface.

usage: batch.py LIBRARY MODEL COUNT TEXT...

LIBRARY is libqwenrt.so. Continues each TEXT with up to COUNT tokens, by the model's own sampling options with seed 1, and prints
a line for each. The scheduler answers all at the same time; each answer is the one that its text alone would get.
"""
import ctypes
import sys
import threading
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof


class Options(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("threads", c_int32), ("sequences", c_int32), ("check", c_int32), ("kv_pages", c_int64),
                ("snapshot_bytes", c_int64)]


class Sampling(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("temperature", c_float), ("top_k", c_int64), ("top_p", c_double), ("min_p", c_double),
                ("repetition_penalty", c_float), ("frequency_penalty", c_float), ("presence_penalty", c_float),
                ("min_tokens", c_int64), ("logit_bias", c_void_p), ("logit_bias_count", c_size_t), ("seed", c_uint64)]


class TokenEvent(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("id", c_int32), ("position", c_int64), ("is_prompt", c_int32), ("logprob", c_float),
                ("top", c_void_p), ("top_count", c_size_t)]


class Ending(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("reason", c_int32), ("error", c_int32), ("text", c_char_p), ("prompt_tokens", c_int64),
                ("cached_tokens", c_int64), ("drawn_tokens", c_int64)]


OnRow = ctypes.CFUNCTYPE(None, c_void_p, POINTER(c_float), c_size_t)
OnDraw = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p)
OnToken = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(TokenEvent))
OnProgress = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
OnEnd = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Ending))


class Request(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("priority", c_int32), ("prompt", POINTER(c_int32)), ("prompt_size", c_size_t),
                ("sampling", POINTER(Sampling)), ("answer", c_uint64), ("max_tokens", c_int64), ("stop_tokens", POINTER(c_int32)),
                ("stop_count", c_size_t), ("salt", c_uint64), ("snapshot_at", c_int64), ("logprobs", c_int32),
                ("top_logprobs", c_int32), ("score_prompt", c_int32), ("user", c_void_p), ("on_hidden", OnRow), ("on_logits", OnRow), ("on_draw", OnDraw),
                ("on_token", OnToken), ("on_progress", OnProgress), ("on_end", OnEnd)]


END_FAILED = 4


def load(path):
    """The library, with the types of the functions that do not take and return int."""
    library = ctypes.CDLL(path)
    library.qwen_last_error.restype = c_char_p
    library.qwen_load.restype = c_void_p
    library.qwen_load.argtypes = [c_char_p, POINTER(Options)]
    library.qwen_free.argtypes = [c_void_p]
    library.qwen_tokenize.restype = c_int64
    library.qwen_tokenize.argtypes = [c_void_p, c_char_p, c_size_t, c_int32, POINTER(c_int32), c_size_t]
    library.qwen_detokenize.restype = c_int64
    library.qwen_detokenize.argtypes = [c_void_p, POINTER(c_int32), c_size_t, c_char_p, c_size_t]
    library.qwen_is_end.argtypes = [c_void_p, c_int32]
    library.qwen_default_sampling.argtypes = [c_void_p, POINTER(Sampling)]
    library.qwen_scheduler_new.restype = c_void_p
    library.qwen_scheduler_new.argtypes = [c_void_p, c_void_p]
    library.qwen_scheduler_free.argtypes = [c_void_p]
    library.qwen_submit.restype = c_int64
    library.qwen_submit.argtypes = [c_void_p, POINTER(Request)]
    return library


class Model:
    def __init__(self, library, path, sequences):
        self.library = load(library)
        self.model = self.check(self.library.qwen_load(path.encode(), byref(Options(size=sizeof(Options), sequences=sequences))))
        self.scheduler = self.check(self.library.qwen_scheduler_new(self.model, None))

    def check(self, result):
        """Returns what a function returned. Ends the program with the error if it failed."""
        if result is None or result < 0:
            sys.exit(f"batch.py: {self.library.qwen_last_error().decode()}")
        return result

    def close(self):
        self.library.qwen_scheduler_free(self.scheduler)
        self.library.qwen_free(self.model)

    def encode(self, text):
        data = text.encode()
        count = self.check(self.library.qwen_tokenize(self.model, data, len(data), 1, None, 0))
        ids = (c_int32 * count)()
        self.library.qwen_tokenize(self.model, data, len(data), 1, ids, count)
        return ids

    def decode(self, ids):
        array = (c_int32 * len(ids))(*ids)
        size = self.check(self.library.qwen_detokenize(self.model, array, len(ids), None, 0))
        text = ctypes.create_string_buffer(size)
        self.library.qwen_detokenize(self.model, array, len(ids), text, size)
        return text.raw.decode(errors="replace")


class Answer:
    """A request that runs. Its functions are called on the scheduler's thread."""

    def __init__(self, model, text, count):
        self.ids, self.error, self.ended = [], None, threading.Event()
        self.model, self.prompt = model, model.encode(text)
        sampling = Sampling(size=sizeof(Sampling))
        model.check(model.library.qwen_default_sampling(model.model, byref(sampling)))
        sampling.seed = 1
        # The object keeps the request, whose functions and prompt must live until the end.
        self.request = Request(size=sizeof(Request), prompt=self.prompt, prompt_size=len(self.prompt), sampling=ctypes.pointer(sampling),
                               max_tokens=count, on_token=OnToken(self.on_token), on_end=OnEnd(self.on_end))
        model.check(model.library.qwen_submit(model.scheduler, byref(self.request)))

    def on_token(self, _, event):
        if self.model.library.qwen_is_end(self.model.model, event.contents.id):
            return 0
        self.ids.append(event.contents.id)
        return 1

    def on_end(self, _, ending):
        if ending.contents.reason == END_FAILED:
            self.error = ending.contents.text.decode()
        self.ended.set()

    def text(self):
        self.ended.wait()
        if self.error:
            sys.exit(f"batch.py: {self.error}")
        return self.model.decode(self.ids)


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    library, path, count, *texts = sys.argv[1:]
    model = Model(library, path, len(texts))
    answers = [Answer(model, text, int(count)) for text in texts]
    for answer in answers:
        print(answer.text())
    model.close()


if __name__ == "__main__":
    main()
