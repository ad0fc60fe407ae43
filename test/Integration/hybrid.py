"""generate, chat and serve with a hybrid: snapshots change no answer, and a turn reads only what no earlier turn has read.

  hybrid.py MODEL_FOLDER TEMPLATES WORKDIR      the tokenizer is that of MODEL_FOLDER (models/stories)
"""
import concurrent.futures
import json
import pathlib
import sys

from checks import Checks, run
from hybrid_model import compile_hybrid
from server import Server

FOLDER, TEMPLATES, WORK = (pathlib.Path(a) for a in sys.argv[1:])
LINES = ["Tell a story.", "Go on. " * 30, "And then?"]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
checks = Checks()


def turn(role, text):
    return f"<|im_start|>{role}\n{text.strip()}<|im_end|>\n"


def chat_answers_as_generate(model):
    """The template leaves out the empty thought of earlier turns."""
    history, answers = "", ""
    for line in LINES:
        history += turn("user", line)
        answer = run(["qwen-run", "generate", model, "-n", "24"],
                     input=history + "<|im_start|>assistant\n<think>\n\n</think>\n\n")
        history += turn("assistant", answer.removesuffix("\n"))
        answers += answer
    for options in ([], ["--snapshot-every", "7"], ["--snapshot-bytes", "0"], ["--snapshot-bytes", "60000", "-t", "2"]):
        found = run(["qwen-run", "chat", model, "--no-think", "-n", "24", *options], input="\n".join(LINES))
        checks.check(found == answers, f"chat {options}: {found!r} is not {answers!r}")


class ChatServer(Server):
    def chat(self, messages, **more):
        """The answer's text, and the tokens of the prompt: all, and those that were not read."""
        body = {"messages": messages, "max_tokens": 40, "seed": 1, "ignore_eos": True, **more}
        answer = self.post("/v1/chat/completions", **body)
        message, usage = answer["choices"][0]["message"], answer["usage"]
        return message["content"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def turns_read_what_is_new(model):
    """A turn reads at most its message, the answer before it and the generation prompt."""
    server, plain = ChatServer(model), ChatServer(model, "--no-prefix-cache")
    for thinking in (True, False):
        for tools in (None, TOOLS):
            what = {"chat_template_kwargs": {"enable_thinking": thinking, "tools": tools}}
            messages = [{"role": "system", "content": f"Be brief. {thinking}"}]
            before = 0
            for line in LINES:
                messages.append({"role": "user", "content": line})
                answer, size, cached = server.chat(messages, **what)
                checks.check(before <= cached < size, f"{what}: {cached} of {size} tokens were cached, not {before}")
                checks.check((answer, size, 0) == plain.chat(messages, **what), f"{what}: the answer depends on snapshots")
                before = plain.chat(messages, add_generation_prompt=False, **what)[1]
                checks.check(before < size, f"{what}: no generation prompt")
                messages.append({"role": "assistant", "content": answer})


def calls_read_what_is_new(model):
    """A turn of an agent reads at most the calls before it, their results and the generation prompt."""
    server, plain = ChatServer(model), ChatServer(model, "--no-prefix-cache")
    for thinking in (True, False):
        what = {"chat_template_kwargs": {"enable_thinking": thinking}, "tools": TOOLS, "max_tokens": 3}
        messages = [{"role": "user", "content": f"Look. {thinking}"}]
        before = 0
        for number in range(4):
            size, cached = server.chat(messages, **what)[1:]
            checks.check(before <= cached < size, f"{what}, call {number}: {cached} of {size} tokens were cached, not {before}")
            before = plain.chat(messages, add_generation_prompt=False, **what)[1]
            call = {"id": f"call_{number}", "type": "function", "function": {"name": "look", "arguments": json.dumps({"where": number})}}
            messages += [{"role": "assistant", "content": None, "reasoning_content": "I look.", "tool_calls": [call]},
                         {"role": "tool", "tool_call_id": call["id"], "content": f"{number} is there. " * 3}]


def answers_at_load(model):
    """Preempted requests go on with the same bits, from snapshots at many positions."""
    plain = ChatServer(model, "--no-prefix-cache")
    busy = ChatServer(model, "--kv-pages", "9", "--sequences", "4", "--snapshot-every", "50", "--snapshot-bytes", "300000")
    conversations = [[{"role": "user", "content": f"{line} {'Why? ' * (20 * i)}"}] for i in range(4) for line in LINES]
    expected = [plain.chat(messages, max_tokens=120)[0] for messages in conversations]
    for _ in range(2):
        with concurrent.futures.ThreadPoolExecutor(len(conversations)) as pool:
            found = list(pool.map(lambda messages: busy.chat(messages, max_tokens=120), conversations))
        checks.check([answer for answer, _, _ in found] == expected, "the answers depend on the load")
    # Under load, newer snapshots may evict all that a request could use.
    _, _, cached = [busy.chat(conversations[-1], max_tokens=1) for _ in range(2)][1]
    checks.check(cached > 0, "no snapshot was of use")
    checks.check(busy.metric("vllm:num_preemptions_total") > 0, "no request was preempted")


def bench_runs_behind_a_text(model):
    """Pages and fixed state of a benchmark's text are copies."""
    speeds = json.loads(run(["qwen-run", "bench", model, "--depth", 192, "--prompt-tokens", 2, "-n", 2, "--batch", 2, "--repetitions", 1, "--json"]))
    checks.check(speeds["depth"] == 192 and speeds["decode_tokens_per_second"]["median"] > 0, f"bench --depth: {speeds}")


model = compile_hybrid(FOLDER, TEMPLATES, WORK)
bench_runs_behind_a_text(model)
chat_answers_as_generate(model)
turns_read_what_is_new(model)
calls_read_what_is_new(model)
answers_at_load(model)
checks.finish()
