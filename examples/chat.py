#!/usr/bin/env python3
"""Answers of a chat model as they come, in asyncio.

usage: chat.py MODEL QUESTION...

Asks all questions at the same time and prints what comes, with the number of the question.
"""
import asyncio
import sys

import qwen_compiler


async def answer(model: qwen_compiler.Model, number: int, question: str) -> None:
    """Prints the parts of one answer."""
    async for part in model.achat([{"role": "user", "content": question}], qwen_compiler.SamplingParams(max_tokens=100, seed=1), stream=True):
        if part.text:
            print(f"{number}: {part.text!r}")


async def main() -> None:
    """Asks all questions."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        with qwen_compiler.load(sys.argv[1]) as model:
            await asyncio.gather(*(answer(model, i, question) for i, question in enumerate(sys.argv[2:], 1)))
    except qwen_compiler.Error as error:
        sys.exit(f"chat.py: {error}")


if __name__ == "__main__":
    asyncio.run(main())
