#!/usr/bin/env python3
"""The id of an added token by its name, through the C interface, is the one that the tokenizer finds.

usage: added_token.py EXAMPLES LIBRARY MODEL
"""
import sys

sys.path.insert(0, sys.argv[1])
import batch  # noqa: E402

model = batch.Model(sys.argv[2], sys.argv[3], 1)
token_id = model.library.qwen_token_id
token_id.argtypes = [batch.c_void_p, batch.c_char_p]
assert [token_id(model.model, b"<|im_end|>")] == list(model.encode("<|im_end|>"))
assert token_id(model.model, b"<|im_end") == -1
error = model.library.qwen_last_error().decode()
assert error.endswith("has no added token \"<|im_end\""), error
model.close()
