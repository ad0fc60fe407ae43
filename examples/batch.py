#!/usr/bin/env python3
"""Several answers at once from Python: pip install the wheel of make packages.

usage: batch.py MODEL COUNT TEXT...

MODEL is a compiled file, a checkpoint folder, a GGUF file or a name in Hugging Face's cache. Continues each TEXT with up to COUNT
tokens, by the model's own sampling options with seed 1, and prints a line for each. All answers run at the same time; each is the one
that its text alone would get.
"""
import sys

import qwen_compiler


def main() -> None:
    """Prints the answers."""
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    name, count, *texts = sys.argv[1:]
    try:
        with qwen_compiler.load(name, sequences=len(texts)) as model:
            for result in model.generate(texts, qwen_compiler.SamplingParams(max_tokens=int(count), seed=1)):
                print(result.text)
    except qwen_compiler.Error as error:
        sys.exit(f"batch.py: {error}")


if __name__ == "__main__":
    main()
