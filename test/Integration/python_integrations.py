"""Integrations that are written for llama-cpp-python, over a module of its name that has the class of the Python package.

  python_integrations.py MODEL SITE STANDIN PACKAGES      SITE has the package, STANDIN the module llama_cpp

Installs LlamaIndex and Haystack in the folder PACKAGES once. Says so and passes where a registry cannot be reached.
"""
import json
import os
import pathlib
import subprocess
import sys

from checks import Checks, run
from packages import install, python_with

MODEL, SITE, STANDIN, PACKAGES = (pathlib.Path(a).resolve() for a in sys.argv[1:5])
LLAMA_INDEX = f"""
from llama_index.core.llms import ChatMessage
from llama_index.llms.llama_cpp import LlamaCPP
model = LlamaCPP(model_path={str(MODEL)!r}, temperature=0.5, max_new_tokens=20, context_window=512, generate_kwargs={{"seed": 1}}, verbose=False)
chat = model.chat([ChatMessage(role="user", content="Hello")]).message.content
found = [model.complete("The king").text, "".join(part.delta for part in model.stream_complete("The king")), bool(chat)]
"""
HAYSTACK = f"""
from haystack.dataclasses import ChatMessage
from haystack_integrations.components.generators.llama_cpp import LlamaCppChatGenerator
found = []
for streams in (False, True):
    parts = []
    options = {{"streaming_callback": lambda part: parts.append(part.content)}} if streams else {{}}
    model = LlamaCppChatGenerator(model={str(MODEL)!r}, n_ctx=512, n_batch=128, generation_kwargs={{"max_tokens": 20, "seed": 1}}, **options)
    model.warm_up()
    found.append(model.run([ChatMessage.from_user("Hello")])["replies"][0].text)
    found.append("".join(parts) == (found[-1] if streams else ""))
"""
OURS = f"""
from qwen_compiler.llama import Llama
with Llama({str(MODEL)!r}) as model:
    found = [model("The king", temperature=0.5, max_tokens=20, seed=1)["choices"][0]["text"],
             model.create_chat_completion([{{"role": "user", "content": "Hello"}}], max_tokens=20, seed=1)["choices"][0]["message"]["content"]]
"""
checks = Checks()
environment = os.environ | {"PYTHONPATH": f"{SITE}{os.pathsep}{STANDIN}", "HAYSTACK_TELEMETRY_ENABLED": "False"}


def answers(python, program):
    return json.loads(run([python, "-c", "import json\n" + program + "\nprint(json.dumps(found))"], env=environment).splitlines()[-1])


text, chat = answers(sys.executable, OURS)
checks.check(text and chat, "the package answers nothing")
for base, package, program, expected in (("llama-index-core==0.14.25", "llama-index-llms-llama-cpp==0.7.0", LLAMA_INDEX, [text, text, True]),
                                         ("haystack-ai==3.4.1", "llama-cpp-haystack==3.0.2", HAYSTACK, [chat, True, chat, True])):
    python = python_with(base, PACKAGES)
    # Without what it stands on, of which there is no wheel.
    if python and install(python, package, "--no-deps") and install(python, "numpy"):
        checks.expect(package, answers(python, program), expected)
    else:
        print(f"skipped: no {package}")
checks.finish()
