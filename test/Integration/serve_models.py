"""qwen-run serve with several models: each answers as if it were alone, and they are loaded, unloaded and refused as the options say.

  serve_models.py FOLDER SMALL LARGE WORKDIR      SMALL and LARGE are FOLDER (models/stories), compiled
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from checks import Checks, run
from server import Server

FOLDER, SMALL, LARGE, WORK = (pathlib.Path(a).resolve() for a in sys.argv[1:5])
A, B = SMALL.stem, LARGE.stem
#: A model takes the pages of one context, and no more.
PAGES = ("--kv-pages", 8, "--sequences", 4)
#: Compiled files of this test alone.
ENV = {**os.environ, "XDG_CACHE_HOME": str(WORK / "cache")}
CHAT = {"messages": [{"role": "user", "content": "Tell a story."}], "max_tokens": 12, "seed": 3}
PROMPT = {"prompt": [5, 6, 7, 8] * 50, "max_tokens": 8, "seed": 7, "temperature": 0.8}
checks = Checks()
expect = checks.expect


def start(*arguments, env=ENV):
    return Server(None, program=["qwen-run", "serve", "--listen", "127.0.0.1:0", *arguments, *PAGES], env=env)


def body(server, path, **request):
    """Status and object of an answer."""
    status, _, text = server.send("POST", path, request)
    return status, json.loads(text)


def error(server, path, **request):
    status, answer = body(server, path, **request)
    return status, answer["error"]["message"]


def models(server):
    return {model["id"]: model for model in json.loads(server.send("GET", "/v1/models")[2])["data"]}


def state(server, name):
    return models(server)[name]["status"]["value"]


def wait_for(server, name, value):
    end = time.time() + 60
    while state(server, name) != value:
        if time.time() > end:
            sys.exit(f"{name} is {state(server, name)} and not {value}")
        time.sleep(0.01)


def answer_of(answer):
    """What an answer has but its id and its times."""
    return [answer[key] for key in ("model", "system_fingerprint", "choices")]


def metric(server, name, model):
    lines = server.send("GET", "/metrics")[2].splitlines()
    return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f'{name}{{model_name="{model}"}}')), None)


def alone(model):
    """The answers of a server of one model."""
    server = Server(model, "--name", model.stem, *PAGES)
    answers = [answer_of(server.post(path, **request)) for path, request in (("/v1/chat/completions", CHAT), ("/v1/completions", PROMPT))]
    tokens = server.post("/tokenize", prompt="Once upon a time")["tokens"]
    expect("a path of several models", server.send("POST", "/models/load", {"model": model.stem})[0], 405)
    server.stop()
    return answers, tokens


def by_name():
    """Requests reach the model that they name, which answers as it does alone."""
    right = {A: alone(SMALL), B: alone(LARGE)}
    server = start(SMALL, LARGE, "--name", f"story={A}")
    expect("models", {name: model["status"]["value"] for name, model in models(server).items()},
           {A: "unloaded", "story": "unloaded", B: "unloaded"})
    expect("contexts", len({model["max_model_len"] for model in models(server).values()}), 1)
    for name in (B, A, B):
        answers, tokens = right[name]
        expect(f"chat of {name}", answer_of(server.post("/v1/chat/completions", model=name, **CHAT)), answers[0])
        expect(f"completion of {name}", answer_of(server.post("/v1/completions", model=name, **PROMPT)), answers[1])
        expect(f"tokens of {name}", server.post("/tokenize", model=name, prompt="Once upon a time")["tokens"], tokens)
    expect("an alias", answer_of(server.post("/v1/chat/completions", model="story", **CHAT)), right[A][0][0])
    text = server.send("POST", "/v1/chat/completions", {**CHAT, "model": B, "stream": True})[2]
    expect("a stream", (text.count('"model":"' + B), text.endswith("data: [DONE]\n\n")), (text.count('"model":'), True))

    # At the same time, with the same bits.
    jobs = [(name, path, request, i) for name in (A, B) for i, (path, request) in enumerate(
        (("/v1/chat/completions", CHAT), ("/v1/completions", PROMPT)))] * 4
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for (name, _, _, i), answer in zip(jobs, threads.map(lambda job: server.post(job[1], model=job[0], **job[2]), jobs)):
            expect(f"{name} beside others", answer_of(answer), right[name][0][i])

    # What the cache has of a prompt is of one model.
    prompt = {**PROMPT, "prompt": [9, 10, 11] * 60}
    found = [server.post("/v1/completions", model=name, **prompt)["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
             for name in (A, B, A, B, "story")]
    expect("cached prompts of two models", found, [False, False, True, True, True])

    refusals(server)
    whole_server(server)
    status, log = server.stop()
    expect("the end", status, 0)
    checks.check(re.search(rf"model {re.escape(A)} is loaded after \d+ ms", log), f"the log has no load: {log}")


def refusals(server):
    names = f'"{A}", "{B}"'
    for name in ("none", f"../{A}", str(SMALL), f"{A}.qwen", f"{A}\x00"):
        status, message = error(server, "/v1/completions", model=name, **PROMPT)
        checks.check(status == 404 and message.endswith(f"; this server has {names}"), f"{name}: {status} {message}")
    expect("no model", error(server, "/v1/completions", **PROMPT), (400, f"model is needed: this server has {names}"))
    expect("no text", error(server, "/v1/completions", model=5, **PROMPT), (400, "model must be a string"))
    expect("no model of a query", server.send("GET", "/props")[0], 400)
    expect("a model of a query", json.loads(server.send("GET", f"/props?a=b&model={B}")[2])["model_alias"], B)
    expect("a model of a query of an open path", json.loads(server.send("GET", "/health?model=none")[2]), {"status": "ok"})
    expect("an unknown model of a query", server.send("GET", "/props?model=..%2fetc")[0], 404)
    for text in (b"{", b"[]", b"5", b'{"model": "%s", "model": "%s"}' % (A.encode(), B.encode()), b'{"a": ' + b"[" * 100000):
        expect(f"body {text[:40]}", server.send("POST", "/v1/completions", text)[0], 400)
    expect("a body of another type", server.send("POST", "/v1/completions", b"{}", {"Content-Type": "text/plain"})[0], 400)
    expect("nested names", error(server, "/v1/chat/completions", messages=[{"role": "user", "content": "a", "model": B}])[0], 400)
    expect("an unknown model of the list", server.send("GET", "/v1/models/none")[0], 404)
    expect("an error of Anthropic's form", json.loads(server.send("POST", "/v1/messages", {"model": "none"})[2])["error"]["type"],
           "not_found_error")


def whole_server(server):
    """What is about no single model."""
    for path in ("/health", "/livez", "/version", "/", "/metrics", "/openapi.json"):
        expect(path, server.send("GET", path)[0], 200)
    expect("a method", (server.send("DELETE", "/v1/models")[0], server.send("OPTIONS", "/models/load")[1]["Allow"]), (405, "GET, HEAD, POST, OPTIONS"))
    paths = json.loads(server.send("GET", "/openapi.json")[2])["paths"]
    checks.check("/models/load" in paths and "/v1/chat/completions" in paths, f"paths are {list(paths)}")
    expect("a description of one model", len(json.loads(server.send("GET", f"/openapi.json?model={A}")[2])["paths"]) < len(paths), True)
    listed = json.loads(server.send("GET", "/v1/models")[2])
    expect("cards", [model["slug"] for model in listed["models"]], [A, "story", B])
    anthropic = json.loads(server.send("GET", "/v1/models", headers={"Anthropic-Version": "2023-06-01"})[2])
    expect("Anthropic's list", (anthropic["first_id"], anthropic["last_id"], len(anthropic["data"])), (A, B, 3))
    text = server.send("GET", "/metrics")[2]
    for name in ("vllm:prompt_tokens_total", "vllm:time_to_first_token_seconds", "qwen_model_loaded"):
        expect(f"help of {name}", text.count(f"# HELP {name} "), 1)
    heads = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP ")]
    expect("metrics", len(heads), len(set(heads)))
    family = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
        elif not line.startswith("#"):
            checks.check(line.startswith(family), f"{line} stands behind the help of {family}")
    for name in (A, B):
        checks.check(metric(server, "vllm:generation_tokens_total", name) > 0, f"no tokens of {name}")
        expect(f"loads of {name}", metric(server, "qwen_model_loads_total", name), 1)


def told(path):
    """The bytes of a model that `info` tells: weights, arena and the pages of PAGES."""
    info = json.loads(run(["qwen-run", "info", path, "--json"]))
    return info["bytes"]["weights"] + info["programs"][0]["arena_bytes"] + PAGES[1] * info["kv"]["page_bytes"]


def memory():
    """Where two models do not fit, the one without requests goes; one that cannot fit is refused with both numbers."""
    server = start(SMALL, LARGE, "--preload", f"{A},{B}")
    wait_for(server, A, "loaded")
    wait_for(server, B, "loaded")
    small, large = (int(metric(server, "qwen_model_memory_bytes", name)) for name in (A, B))
    server.stop()
    rest = [size - told(path) for size, path in ((small, SMALL), (large, LARGE))]
    checks.check(rest[0] == rest[1] > 0, f"beside what info tells, the models have {rest} bytes")

    server = start(SMALL, LARGE, "--max-memory", small + large)
    for name in (A, B, A, B):
        server.post("/v1/completions", model=name, **PROMPT)
    expect("loads where both fit", [metric(server, "qwen_model_loads_total", name) for name in (A, B)], [1, 1])
    server.stop()

    server = start(SMALL, LARGE, "--max-memory", small + large - 1)
    counters = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:request_generation_tokens_count")
    server.post("/v1/completions", model=A, **PROMPT)
    first = [metric(server, name, A) for name in counters]
    steps = metric(server, "llamacpp:n_decode_total", A)
    for name in (B, A):
        server.post("/v1/completions", model=name, **PROMPT)
    expect("counters of a model that is loaded again", [metric(server, name, A) for name in counters], [2 * value for value in first])
    # How many steps an answer takes depends on what drafts have saved.
    checks.check(metric(server, "llamacpp:n_decode_total", A) > steps, "the steps of a model that is loaded again begin anew")
    checks.check(all(first), f"counters of one request: {first}")
    expect("states where one fits", (state(server, A), state(server, B)), ("loaded", "unloaded"))
    # A model with a request stays.
    stream = server.connect()
    stream.request("POST", "/v1/completions", json.dumps({**PROMPT, "model": A, "max_tokens": 300, "stream": True, "ignore_eos": True}),
                   {"Content-Type": "application/json"})
    response = stream.getresponse()
    response.read1(1)
    busy = error(server, "/v1/completions", model=B, **PROMPT)
    isBusy = metric(server, "vllm:num_requests_running", A)
    if isBusy:
        expect("no room", busy, (503, f'cannot load "{B}": {B} needs {large} bytes of memory when --max-memory allows '
                                      f"{small + large - 1} bytes and other models and caches have {small}"))
        expect("a busy model", error(server, "/models/unload", model=A),
               (409, f"{A} answers 1 request; it can be unloaded when none is left"))
    checks.check(response.read().endswith(b"[DONE]\n\n"), "a stream was cut")
    stream.close()
    server.post("/v1/completions", model=B, **PROMPT)
    server.stop()

    server = start(SMALL, LARGE, "--max-memory", large - 1)
    server.post("/v1/completions", model=A, **PROMPT)
    expect("a model that cannot fit", error(server, "/v1/completions", model=B, **PROMPT),
           (503, f'cannot load "{B}": {B} needs {large} bytes of memory when --max-memory allows {large - 1} bytes and other models and caches have {small}'))
    expect("the other one", state(server, A), "loaded")
    server.stop()


def on_demand():
    """Models come and go by time and by request; a key is needed if there is one."""
    server = start(SMALL, LARGE, "--model-idle", 0.5, "--preload", B)
    wait_for(server, B, "loaded")
    wait_for(server, B, "unloaded")
    server.post("/v1/completions", model=B, **PROMPT)
    expect("loads", metric(server, "qwen_model_loads_total", B), 2)
    server.stop()

    server = start(SMALL, LARGE, env={**ENV, "QWEN_RUN_API_KEY": "k"})
    key = {"X-Api-Key": "k"}
    for path in ("/models/load", "/models/unload", "/v1/models"):
        method, asked = ("GET", None) if path == "/v1/models" else ("POST", {"model": A})
        expect(f"{path} without a key", server.send(method, path, asked)[0], 401)

    def ask(path, name):
        status, _, text = server.send("POST", path, {"model": name}, key)
        return status, json.loads(text)

    def value():
        listed = json.loads(server.send("GET", "/v1/models", headers=key)[2])["data"]
        return next(model["status"]["value"] for model in listed if model["id"] == A)

    expect("load", ask("/models/load", A), (200, {"success": True}))
    while value() != "loaded":
        time.sleep(0.01)
    expect("unload", ask("/models/unload", A), (200, {"success": True}))
    expect("an unloaded model", value(), "unloaded")
    expect("unload twice", ask("/models/unload", A)[0], 200)
    expect("an unknown one", ask("/models/load", "x")[0], 404)
    server.stop()


def folder():
    """A folder of models: compiled files, GGUF files, checkpoints, damaged files and links."""
    models_dir = WORK / "models"
    models_dir.mkdir()
    shutil.copy(SMALL, models_dir / "small.qwen")
    run(["qwen-opt", "export", SMALL, "-o", models_dir / "exported.gguf"])
    (models_dir / "inside.qwen").symlink_to("small.qwen")
    (models_dir / "outside.qwen").symlink_to(LARGE)
    (models_dir / "broken.qwen").write_bytes(SMALL.read_bytes()[:5000])
    (models_dir / "notes.txt").write_text("none")
    checkpoint = models_dir / "checkpoint"
    checkpoint.mkdir()
    for file in FOLDER.iterdir():
        if file.is_file():
            shutil.copy(file, checkpoint / file.name)
    linked = models_dir / "linked"
    linked.mkdir()
    for file in checkpoint.iterdir():
        (linked / file.name).symlink_to(FOLDER / file.name)
    server = start("--models-dir", models_dir, "--weights", "q4_0")
    expect("models of a folder", list(models(server)), ["broken", "checkpoint", "exported", "inside", "small"])

    seen = set()
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        compiled = threads.submit(server.post, "/v1/completions", model="checkpoint", **PROMPT)
        # A client that leaves while it waits.
        leaver = server.connect()
        leaver.request("POST", "/v1/completions", json.dumps({**PROMPT, "model": "checkpoint"}), {"Content-Type": "application/json"})
        wait_for(server, "checkpoint", "loading")
        leaver.close()
        while not compiled.done():
            status = models(server)["checkpoint"]["status"]
            seen.add((status["value"], status.get("stage", ""), "progress" in status))
            time.sleep(0.02)
        answer = compiled.result()
    checks.check(any(value == "loading" and progress for value, _, progress in seen), f"no progress was told: {seen}")
    anthropic = json.loads(server.send("GET", "/v1/models/checkpoint", headers={"Anthropic-Version": "2023-06-01"})[2])
    expect("the context of a loaded model", anthropic["max_input_tokens"], models(server)["small"]["max_model_len"])
    expect("an answer of a compiled checkpoint", len(answer["choices"]), 1)
    status, message = error(server, "/v1/completions", model="broken", **PROMPT)
    checks.check(status == 503 and message.startswith('cannot load "broken": '), f"{status} {message}")
    failed = models(server)["broken"]["status"]
    expect("a failure", (failed["value"], failed["failed"], message.endswith(failed["error"])), ("unloaded", True, True))
    choices = [server.post("/v1/completions", model=name, **PROMPT)["choices"] for name in ("small", "inside", "exported")]
    checks.check(all(each == choices[0] for each in choices), f"answers of one model: {choices}")
    status, log = server.stop()
    expect("the end", status, 0)
    checks.check(re.search(r"/v1/completions 499 \d+ms disconnected", log), f"no client has left: {log}")
    skipped = re.findall(r"skips a model: \S*/models/(\S+) is a link that leaves", server.said)
    expect("links that leave the folder", [name.split("/")[0] for name in skipped], ["linked", "outside.qwen"])

    # The cache has the file now.
    server = start("--models-dir", models_dir, "--weights", "q4_0")
    expect("the same answer", answer_of(server.post("/v1/completions", model="checkpoint", **PROMPT)), answer_of(answer))
    checks.check("compiles" not in "".join(server.log), "a model was compiled twice")
    # A link that changes later is no way out.
    (models_dir / "inside.qwen").unlink()
    (models_dir / "inside.qwen").symlink_to(LARGE)
    status, message = error(server, "/v1/completions", model="inside", **PROMPT)
    checks.check(status == 503 and "leaves" in message, f"{status} {message}")
    server.stop()


def command_lines():
    """What is wrong with the options is an error before there is a server."""
    (WORK / "empty").mkdir()
    shutil.copy(SMALL, WORK / f"{A}.qwen")
    for arguments, told in (
            ((), "MODEL is missing"),
            (("--models-dir", WORK / "empty"), "has no model: a compiled file, a GGUF file or a checkpoint folder is needed"),
            (("--models-dir", WORK / "none"), "cannot read the folder"),
            ((SMALL, WORK / "none.qwen"), "none.qwen"),
            ((SMALL, WORK / f"{A}.qwen"), f'two models have the name "{A}"; rename a file, or give another alias with --name'),
            ((SMALL, LARGE, "--name", f"{B}={A}"), f'two models have the name "{B}"'),
            ((SMALL, LARGE, "--name", "x"), f'--name "x" must be ALIAS=MODEL when there are several models, which are "{A}", "{B}"'),
            ((SMALL, LARGE, "--preload", "x"), f'no such model: "x"; this server has "{A}", "{B}"'),
            ((SMALL, LARGE, "--speculate", SMALL), "drafts for one model, and there are several")):
        command = ["qwen-run", "serve", "--listen", "127.0.0.1:0", *arguments]
        ended = subprocess.run([str(each) for each in command], capture_output=True, text=True, timeout=60, env=ENV)
        checks.check(ended.returncode != 0 and told in ended.stderr and ended.stderr.count("\n") == 1, f"{arguments}: {ended.returncode} {ended.stderr}")


def main():
    command_lines()
    by_name()
    memory()
    on_demand()
    folder()
    checks.finish()


main()
