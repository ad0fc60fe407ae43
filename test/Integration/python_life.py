"""A model in the process among threads, tasks, interrupts, forks and exits.

  python_life.py MODEL CHECKPOINT FOLDER
"""
import asyncio
import concurrent.futures
import ctypes
import gc
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback

import qwen_compiler
from checks import Checks
from qwen_compiler import SamplingParams

MODEL, CHECKPOINT, FOLDER = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
# No answer ends by itself.
LONG = SamplingParams(max_tokens=400, ignore_eos=True, seed=1)
checks = Checks()


def refused(name, text, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except qwen_compiler.Error as error:
        checks.check(text in str(error), f"{name}: {error!r} does not have {text!r}")
        return error
    checks.check(False, f"{name}: nothing is raised")


def sequences_free(model):
    """Whether no request runs, within seconds."""
    for _ in range(500):
        if not model._handle.flights:
            return True
        time.sleep(0.01)
    return False


def check_crowd(model):
    """8 threads and 50 tasks at once."""
    alone = [model.generate(f"The number {i}", SamplingParams(seed=i, max_tokens=12))[0].text for i in range(58)]

    def one(i):
        return model.generate(f"The number {i}", SamplingParams(seed=i, max_tokens=12))[0].text

    async def tasks():
        async def each(i):
            return (await model.agenerate(f"The number {i}", SamplingParams(seed=i, max_tokens=12)))[0].text
        return await asyncio.gather(*map(each, range(8, 58)))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        threads = [pool.submit(one, i) for i in range(8)]
        answers = asyncio.run(tasks())
        checks.expect("a crowd", [thread.result() for thread in threads] + answers, alone)


def check_interrupts(model):
    for name, call in {"generate": lambda: model.generate("The king", LONG), "stream": lambda: list(model.generate("The king", LONG, stream=True)),
                       "a long prompt": lambda: model.generate("The king. " * 80, LONG)}.items():
        # A quiet machine writes the whole answer in 0.05 s.
        timer = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            call()
            checks.check(False, f"{name} is not interrupted")
        except KeyboardInterrupt:
            pass
        timer.join()
        checks.check(sequences_free(model), f"{name} goes on after an interrupt")
    checks.check(model.generate("The king", SamplingParams(max_tokens=4)), "no answer after an interrupt")


def check_cancelled(model):
    async def cancelled():
        tasks = [asyncio.create_task(model.agenerate("The king", LONG)) for _ in range(20)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        stream = model.agenerate("The king", LONG, stream=True)
        async for _ in stream:
            break
        await stream.aclose()
        return sum(isinstance(each, asyncio.CancelledError) for each in ended)

    checks.expect("cancelled tasks", asyncio.run(cancelled()), 20)
    checks.check(sequences_free(model), "a cancelled task keeps its sequence")
    for _ in model.generate(["The king", "A cat"], LONG, stream=True):
        break
    gc.collect()
    checks.check(sequences_free(model), "a stream that nobody reads keeps its sequence")


def check_processors(model):
    def ban(tokens, logits):
        logits[banned] = -float("inf")

    def fail(tokens, logits):
        if len(tokens) > len(prompt) + 2:
            raise ValueError("of the processor")

    prompt = model.tokenize("Once upon a time")
    free = model.generate("Once upon a time", SamplingParams(seed=3, max_tokens=20))[0]
    banned = free.token_ids[0]
    answer = model.generate("Once upon a time", SamplingParams(seed=3, max_tokens=20, logits_processors=[ban]))[0]
    checks.check(len(answer.token_ids) > 1 and banned not in answer.token_ids, "a processor bans no token")
    try:
        model.generate(["Once upon a time", "The king"], [SamplingParams(seed=3, max_tokens=20, logits_processors=[fail]), SamplingParams(seed=3, max_tokens=20)])
        checks.check(False, "the exception of a processor is lost")
    except qwen_compiler.AnswerError as error:
        text = "".join(traceback.format_exception(error))
        checks.check("ValueError: of the processor" in text and "in fail" in text, f"the traceback has no processor: {text}")
        checks.expect("reasons", [each.finish_reason for each in error.results], ["error", "length"])
        checks.expect("tokens before the exception", error.results[0].token_ids, free.token_ids[:3])
        checks.expect("an answer beside one that fails", error.results[1].text, model.generate("The king", SamplingParams(seed=3, max_tokens=20))[0].text)
    # A processor may keep what it gets.
    rows, copies = [], []
    model.generate("The king", SamplingParams(seed=3, max_tokens=6, logits_processors=[lambda tokens, logits: rows.append(logits[1:]) or copies.append(logits.copy())]))
    checks.check(len(rows) == 6 and all((row == copy[1:]).all() for row, copy in zip(rows, copies)) and (rows[0] != rows[1]).any(), "rows that a processor keeps change")
    for name, wrong in {"shape": lambda tokens, logits: logits[:3], "NaN": lambda tokens, logits: logits * float("nan")}.items():
        refused(name, "is needed" if name == "shape" else "", model.generate, "The king", SamplingParams(logits_processors=[wrong]))
    refused("a wait in a processor", "cannot wait", model.generate, "The king",
            SamplingParams(logits_processors=[lambda tokens, logits: model.generate("A cat") and None]))
    refused("a close in a processor", "cannot close", model.generate, "The king", SamplingParams(logits_processors=[lambda tokens, logits: model.close()]))


def check_lock_is_free(model):
    """A timer ticks while a prompt runs."""
    ticks, done = [], threading.Event()

    def tick():
        while not done.wait(0.005):
            ticks.append(time.monotonic())

    ticker = threading.Thread(target=tick)
    ticker.start()
    before = time.process_time()
    while time.process_time() - before < 0.3:
        model.generate("The king was old. " * 25, SamplingParams(max_tokens=0, cache_salt=int(before * 1e6) + len(ticks) + 1))
    done.set()
    ticker.join()
    # A call that held the lock would leave no tick.
    checks.check(len(ticks) > 5, f"{len(ticks)} ticks during prompts")


def check_closed(model):
    waiting = []

    def wait():
        try:
            model.generate("The king", LONG)
        except qwen_compiler.ClosedError as error:
            waiting.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(model._handle.flights) < 3:
        time.sleep(0.001)
    closers = [threading.Thread(target=model.close) for _ in range(4)]
    for thread in closers:
        thread.start()
    for thread in [*closers, *threads]:
        thread.join()
    checks.expect("answers of a model that is closed", len(waiting), 3)
    model.close()
    for name, call in {"generate": lambda: model.generate("The king"), "tokenize": lambda: model.tokenize("The king"),
                       "stream": lambda: list(model.generate("The king", stream=True)), "chat": lambda: model.chat([{"role": "user", "content": "Hi"}])}.items():
        refused(name + " of a closed model", "is closed", call)


def check_fork(model):
    process = os.fork()
    if not process:
        status = 1
        try:
            model.generate("The king")
        except qwen_compiler.Error as error:
            status = 0 if "forked" in str(error) else 2
        model.close()
        with qwen_compiler.load(MODEL) as own:
            status += 4 * (own.generate("The king", SamplingParams(seed=1, max_tokens=4))[0].text != expected)
        os._exit(status)
    checks.expect("status of a child", os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), 0)


def check_exits():
    """Programs that leave in the middle print nothing and end with their own status."""
    begin = f"import qwen_compiler, sys, threading, os\nfrom qwen_compiler import SamplingParams\nmodel = qwen_compiler.load({str(MODEL)!r})\n"
    answer = "model.generate('The king', SamplingParams(max_tokens=400, ignore_eos=True)"
    programs = {"without close": "", "with a stream": f"stream = iter({answer}, stream=True))\nnext(stream)",
                "with a daemon": f"threading.Thread(target=lambda: {answer}), daemon=True).start()",
                "with daemons that go on": f"def go_on():\n  while True: model.generate('The king', SamplingParams(max_tokens=3))\nfor _ in range(4): threading.Thread(target=go_on, daemon=True).start()",
                "with a cycle": f"class A: pass\na = A(); a.a = a; a.model = model; a.stream = {answer}, stream=True); next(a.stream); del model",
                "with a processor": f"threading.Thread(target=lambda: {answer[:-1]}, logits_processors=[lambda t, l: None])), daemon=True).start()\nimport time; time.sleep(0.1)",
                # Python 3.15 warns of it.
                "with a fork": "import warnings; warnings.simplefilter('ignore')\nif os.fork() == 0: sys.exit(3)\nos.wait()", "with status 3": "sys.exit(3)"}
    running = {name: subprocess.Popen([sys.executable, "-W", "error", "-c", begin + code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for name, code in programs.items()}
    for name, process in running.items():
        output = process.communicate(timeout=60)[0]
        checks.expect(f"exit {name}", (output, process.returncode), ("", 3 if "3" in name else 0))


def memory():
    """Bytes of this process that no file has."""
    # What malloc keeps for later is not kept by the model.
    ctypes.CDLL(None).malloc_trim(0)
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) << 10


def thread_states():
    """The number of threads that the interpreter knows."""
    python = ctypes.pythonapi
    for function in (python.PyInterpreterState_Get, python.PyInterpreterState_ThreadHead, python.PyThreadState_Next):
        function.restype = ctypes.c_void_p
    state, count = python.PyInterpreterState_ThreadHead(ctypes.c_void_p(python.PyInterpreterState_Get())), 0
    while state:
        state, count = python.PyThreadState_Next(ctypes.c_void_p(state)), count + 1
    return count


def check_memory():
    sizes = []
    for i in range(200):
        model = qwen_compiler.load(MODEL, check="off")
        model.generate("The king", SamplingParams(max_tokens=2, logits_processors=[lambda tokens, logits: None]))
        if i % 2:
            model.close()
        del model
        if i in (49, 199):
            gc.collect()
            sizes.append(memory())
    checks.check(sizes[1] - sizes[0] < 2 << 20, f"150 loads keep {sizes[1] - sizes[0]} bytes")
    checks.expect("threads that are left", (threading.active_count(), thread_states()), (1, 1))


def check_processor():
    """A processor that lacks what the model needs is an exception with the sentence of the command."""
    if not shutil.which("qemu-x86_64-static") or os.uname().machine != "x86_64":
        print("skipped: no emulator")
        return
    emulated = ["qemu-x86_64-static", "-cpu", "Nehalem"]
    theirs = subprocess.run([*emulated, shutil.which("qwen-run"), "generate", MODEL, "-p", "x"], capture_output=True, text=True)
    program = f"import qwen_compiler\ntry: qwen_compiler.load({str(MODEL)!r})\nexcept qwen_compiler.Error as error: print(error)"
    ours = subprocess.run([*emulated, os.path.realpath(sys.executable), "-c", program], capture_output=True, text=True)
    checks.check("machine lacks" in theirs.stderr, f"the command says {theirs.stderr!r}")
    checks.expect("an old processor", (ours.stdout, ours.returncode), (theirs.stderr.removeprefix("qwen-run: "), 0))


def check_loads():
    os.environ["XDG_CACHE_HOME"] = str(FOLDER / "cache")
    with qwen_compiler.load(CHECKPOINT, weights="q8_0") as model:
        checks.check(model.path.startswith(str(FOLDER / "cache")), f"the cache is not used: {model.path}")
        first = model.generate("The king", SamplingParams(seed=1, max_tokens=8))[0].text
    stages = []
    out = FOLDER / "model.qwen"
    qwen_compiler.compile(CHECKPOINT, out, weights="q8_0", progress=lambda stage, done, total: stages.append((stage, done <= total)))
    checks.check(stages and all(fits for _, fits in stages), f"progress is {stages[:3]}")
    with qwen_compiler.load(out) as model:
        checks.expect("a compiled file", model.generate("The king", SamplingParams(seed=1, max_tokens=8))[0].text, first)
    refused("no model", "nothing/here", qwen_compiler.load, "nothing/here")
    refused("an unknown option", "--no-such-option", qwen_compiler.load, CHECKPOINT, no_such_option=1)
    refused("an unknown format", "--weights", qwen_compiler.compile, CHECKPOINT, FOLDER / "bad.qwen", weights="q99")
    refused("another type", "wrong type", qwen_compiler.load, MODEL, threads="two")
    refused("another check", "check is 'soon'", qwen_compiler.load, MODEL, check="soon")
    checks.expect("files that are left", sorted(path.name for path in FOLDER.glob("*.qwen*")), ["model.qwen"])
    os.environ["XDG_CACHE_HOME"] = str(MODEL)
    refused("no cache", "cache", qwen_compiler.load, CHECKPOINT, weights="q8_0")


# A background job ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
FOLDER.mkdir(parents=True, exist_ok=True)
model = qwen_compiler.load(MODEL)
expected = model.generate("The king", SamplingParams(seed=1, max_tokens=4))[0].text
check_crowd(model)
check_interrupts(model)
check_cancelled(model)
check_processors(model)
check_lock_is_free(model)
check_fork(model)
check_closed(model)
check_exits()
check_memory()
check_processor()
check_loads()
checks.finish()
