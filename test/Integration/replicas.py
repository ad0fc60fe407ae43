"""Engines on groups of cores give the answers of one engine, and share one mapping of the file.

  replicas.py MODEL      a compiled model
"""
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys

from checks import Checks, run
from server import Server

MODEL = pathlib.Path(sys.argv[1])
checks = Checks()
expect = checks.expect
doctor = {each["check"]: each["found"] for each in json.loads(run(["qwen-run", "doctor", "--json"]))}
cores = int(re.match(r"(\d+) core", doctor["cores"])[1])
checks.check(doctor["replicas"].startswith("auto is "), f"doctor says {doctor['replicas']}")


def fail(*command):
    return subprocess.run(["qwen-run", *map(str, command)], capture_output=True, text=True)


result = fail("serve", MODEL, "--listen", "127.0.0.1:0", "--replicas", cores + 1)
expect("too many groups", (result.returncode, result.stderr.splitlines()[-1]),
       (1, f"qwen-run: there are {cores + 1} groups of cores when {cores} cores can run, and a group needs one"))
result = fail("serve", MODEL, "--replicas", "several")
expect("a wrong number", (result.returncode, "several" in result.stderr), (2, True))
if cores < 2:
    print("skipped: one core")
    sys.exit(checks.finish())

BODIES = [{"prompt": words, "seed": seed, "max_tokens": 40, "logprobs": 1, "return_token_ids": True}
          for seed in range(12) for words in ("The king", "Once upon a time " * 30 + str(seed % 3))]


def answers(server, bodies):
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return [(answer["choices"], answer["x_seed"]) for answer in pool.map(lambda body: server.post("/v1/completions", **body), bodies)]


def threads(server):
    """The CPUs of each thread that is bound to one of several."""
    folder = pathlib.Path(f"/proc/{server.process.pid}/task")
    masks = [re.search(r"Cpus_allowed_list:\t(.*)", (task / "status").read_text())[1] for task in folder.iterdir()]
    return sorted({int(mask) for mask in masks if mask.isdigit()})


def mapped(server):
    """Mappings of the weights, the largest part of the file."""
    lines = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text().splitlines()
    sizes = [int(end, 16) - int(begin, 16) for line in lines if line.endswith(str(MODEL)) for begin, end in [line.split()[0].split("-")]]
    return sum(size > MODEL.stat().st_size // 2 for size in sizes)


one = Server(MODEL)
expected = answers(one, BODIES)
one.stop()
for options in (["--replicas", 2], ["--replicas", 2, "--numa", "copy", "--check", "now"], ["--replicas", "auto"]):
    server = Server(MODEL, *options)
    expect(f"the answers with {options}", answers(server, BODIES), expected)
    if options[1] == 2:
        checks.check(len(threads(server)) == 2, f"threads run on {threads(server)}")
        expect("the mappings of the weights", mapped(server), 1)
        expect("the slots", json.loads(server.send("GET", "/props")[2])["total_slots"], 32)
        expect("the prompts that engines found", server.metric("vllm:prefix_cache_hits_total") > 0, True)
        # One prompt goes where its beginning is.
        alone = dict(BODIES[1], cache_salt="alone")
        cached = [server.post("/v1/completions", **alone)["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(4)]
        checks.check(cached[0] == 0 and min(cached[1:]) > 0, f"the cached tokens of one prompt are {cached}")
    status, log = server.stop()
    expect("the end", status, 0)
    expect("the engines of the log", len(re.findall(r"engine \d runs on CPUs", log)), 2 if options[1] == 2 else 0)
bench = json.loads(run(["qwen-run", "bench", MODEL, "--replicas", 2, "--prompt-tokens", 64, "-n", 8, "--repetitions", 1, "--json"]))
expect("the engines of bench", (len(bench["engines"]), bench["sequences"]), (2, 2))
checks.check(all(bench[of][speed]["median"] > 0 for of in ("replicas", "one_engine") for speed in ("prefill_tokens_per_second", "decode_tokens_per_second")),
             f"bench says {bench}")
checks.finish()
