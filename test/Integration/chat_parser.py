"""The parser of the C interface: the events of an answer whose reasoning the prompt begins, and the state before each token.

  parser.py MODEL      MODEL has a template whose prompts begin the reasoning, and the token </think>
"""
import ctypes
import sys

import qwen_compiler
from qwen_compiler import _declarations as c
from qwen_compiler._library import check, ids_array, last_error, library, sized

from checks import Checks

STOPS = (ctypes.c_char_p * 2)(b"none", b"king")
TOOLS = b'[{"type": "function", "function": {"name": "f"}}]'
checks = Checks()


class Parser:
    """Parses answers of a loaded model."""

    def __init__(self, model, native):
        self.model, self.native = model, native
        self.prompt, self.end = self.ids("<|im_start|>assistant\n<think>\n"), self.ids("<|im_end|>")

    def ids(self, text):
        return ids_array(self.model.tokenize(text))

    def open(self, **options):
        """A parser with these options, or None with an error."""
        return library().qwen_parser_new(self.native, ctypes.byref(sized(c.qwen_parser_options, **options)))

    def parse(self, text, **options):
        """The text of each kind of event, and the states."""
        ids = self.ids(text)
        one = check(self.open(prompt=self.prompt, prompt_size=len(self.prompt), stops=STOPS, stop_count=2, end_tokens=self.end, end_count=1, **options))
        event, state = sized(c.qwen_event), sized(c.qwen_answer_state)
        texts, states, tokens = {}, [], 0
        for i in range(len(ids) + 1):
            check(library().qwen_parser_state(one, ctypes.byref(state)))
            states.append((state.in_reasoning, state.reasoning_tokens, state.next_token, state.stopped))
            check(library().qwen_parser_feed(one, ids_array(ids[i:i + 1]), 1) if i < len(ids) else library().qwen_parser_finish(one))
            while check(library().qwen_parser_event(one, ctypes.byref(event))):
                texts[event.kind] = texts.get(event.kind, "") + ctypes.string_at(event.text, event.text_size).decode()
                tokens += event.token_count
        checks.expect("tokens of the parser", tokens, len(ids))
        checks.check(library().qwen_parser_feed(one, ids, 1) < 0 and "the answer has ended" in str(last_error()), "an ended answer goes on")
        library().qwen_parser_free(one)
        return texts, states


def answers(parser):
    """Texts, reasoning, budgets and calls."""
    thought = len(parser.ids("Once upon"))
    texts, states = parser.parse("Once upon</think>\n\nThe king<|im_end|>")
    checks.expect("events", texts, {0: "The ", 1: "Once upon", 5: "king", 6: ""})
    checks.expect("states", states[:thought + 2], [(1, i, -1, 0) for i in range(thought + 1)] + [(0, thought, -1, 0)])
    checks.expect("the last state", states[-1], (0, thought, -1, 1))
    checks.expect("one text", parser.parse("Once</think>A king<|im_end|>", join_reasoning=1, include_stop=1, keep_special=1)[0],
           {0: "Once</think>A king", 5: "king", 6: ""})
    checks.expect("a budget", parser.parse("Once upon", has_budget=1, reasoning_budget=1)[1][1], (1, 1, 4092, 0))
    message = parser.ids("king")
    checks.expect("a message", parser.parse("Once upon", has_budget=1, reasoning_budget=1 + len(message), budget_message=message,
                                     budget_message_size=len(message))[1][1], (1, 1, message[0], 0))
    called = 'Once</think>A <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    checks.expect("a call", parser.parse(called, tools=TOOLS)[0], {0: "A ", 1: "Once", 2: "f", 3: '{"a": 1}', 4: "", 6: ""})
    checks.expect("a text", parser.parse(called)[0][0], called.partition("</think>")[2])


def refusals(parser):
    """Options that no parser has."""
    for options, reason in (({"tools": b"[1]"}, "tools[0] must be"), ({"tools": b"x"}, "tools is not JSON"),
                            ({"tools": TOOLS, "tool_format": b"x"}, "tool_format must be one of hermes, xml"),
                            ({"stops": (ctypes.c_char_p * 1)(b""), "stop_count": 1}, "a stop string is empty")):
        checks.check(not parser.open(**options) and reason in str(last_error()), f"{options}: {last_error()}")


with qwen_compiler.load(sys.argv[1]) as loaded, loaded._handle.use() as model:
    answers(Parser(loaded, model))
    refusals(Parser(loaded, model))
checks.finish()
