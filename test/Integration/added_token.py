"""The id of an added token by its name is the one that the tokenizer finds: `added_token.py MODEL`."""
import sys

import qwen_compiler

with qwen_compiler.load(sys.argv[1]) as model:
    assert [model.token_id("<|im_end|>")] == model.tokenize("<|im_end|>")
    assert len(model.tokenize("<|im_end|>", special=False)) > 1
    try:
        model.token_id("<|im_end")
        raise AssertionError("there is such a token")
    except qwen_compiler.Error as error:
        assert str(error).endswith('has no added token "<|im_end"'), error
