"""Several servers behind vllm-router, at more load than one of them holds (serve.py --servers).

One server alone answers as many clients as it runs sequences, each again as soon as it has its answer: its capacity. Then requests come at some
times this rate, at random moments, to a router before all servers. A request has 128 tokens of prompt and draws 32, streamed. Tokens that come
together have a gap of 0.
"""
import asyncio
import collections
import contextlib
import json
import random
import statistics
import subprocess
import sys
import time

import peers

ROUTER, NAME = "vllm-router==0.1.17", "bench"
PROMPT, DRAWN = 128, 32
# Patience of a client. An answer that takes longer is a failure of the server.
PATIENCE = 120


async def answer(port, prompt):
    """The status of an answer, whether it says when to come again, and when its tokens came after the request was sent."""
    body = json.dumps({"model": NAME, "prompt": prompt, "max_tokens": DRAWN, "temperature": 0, "ignore_eos": True, "stream": True})
    sent = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write((f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n" + body).encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    # An event may come in two parts, and several in one.
    times, rest = [], b""
    while part := await reader.read(1 << 16):
        *events, rest = (rest + part).split(b'"finish_reason":null')
        times += [time.perf_counter() - sent] * len(events)
    writer.close()
    status = int(head.split()[1])
    return "no end" if status == 200 and b"[DONE]" not in rest else status, "retry-after:" in head, times


async def patient(port, prompt):
    try:
        return await asyncio.wait_for(answer(port, prompt), PATIENCE)
    except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError) as error:
        return type(error).__name__, False, []


def prompts(seed):
    random_numbers = random.Random(seed)
    while True:
        yield [random_numbers.randrange(1000, 100000) for _ in range(PROMPT)]


async def capacity(port, clients, seconds):
    """Requests a second of clients that ask again as soon as they have an answer."""
    texts, end, done = prompts(0), time.perf_counter() + seconds, []

    async def client():
        while time.perf_counter() < end:
            done.append(await patient(port, next(texts)))
    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return sum(status == 200 for status, *_ in done) / (time.perf_counter() - begin)


async def offer(port, rate, load, duration):
    """The answers to requests that come at a rate, and the seconds until the last one."""
    texts, moments, tasks = prompts(load), random.Random(load), []
    begin = time.perf_counter()
    while time.perf_counter() < begin + duration:
        tasks.append(asyncio.create_task(patient(port, next(texts))))
        await asyncio.sleep(moments.expovariate(rate))
    return await asyncio.gather(*tasks), time.perf_counter() - begin


def percentiles(values):
    """The median and the 99th percentile."""
    if len(values) < 2:
        return values * 2 or [None, None]
    return [statistics.median(values), statistics.quantiles(values, n=100)[98]]


def figures(answers, seconds):
    good = [times for status, _, times in answers if status == 200 and times]
    refused = [told for status, told, _ in answers if status == 429]
    return {"requests": len(answers), "answers per second": len(good) / seconds,
            "first token": percentiles([times[0] for times in good]),
            "gap": percentiles([b - a for times in good for a, b in zip(times, times[1:])]),
            "429 with Retry-After": sum(refused), "429 without": len(refused) - sum(refused),
            # Other statuses, errors of the connection, and streams without their end.
            "failures": collections.Counter(str(status) for status, *_ in answers if status not in (200, 429))}


@contextlib.contextmanager
def router(workdir, servers, port):
    program = workdir / "router/bin/vllm-router"
    if not program.exists():
        peers.output("python3", "-m", "venv", workdir / "router")
        peers.output(workdir / "router/bin/pip", "install", "-q", ROUTER)
    process = subprocess.Popen([program, "--policy", "round_robin", "--disable-retries", "--host", "127.0.0.1", "--port", str(port), "--worker-urls",
                                *(f"http://127.0.0.1:{server.port}" for server in servers)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.time() + 120
        while asyncio.run(patient(port, [1]))[0] != 200:
            if process.poll() is not None or time.time() > end:
                sys.exit("vllm-router does not begin")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def measure(args, start, free_port):
    """The capacity of a server, and the figures at each load; `start` gives a running server of a number of sequences."""
    sequences = max(args.clients)
    with start(sequences) as alone:
        asyncio.run(patient(alone.port, [1]))
        result = {"capacity": asyncio.run(capacity(alone.port, sequences, args.seconds)), "loads": {}}
    if not result["capacity"]:
        sys.exit("one server alone answers nothing")
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(start(sequences)) for _ in range(args.servers)]
        port = free_port()
        stack.enter_context(router(args.workdir, servers, port))
        for load in args.loads:
            result["loads"][load] = figures(*asyncio.run(offer(port, load * result["capacity"], load, args.seconds)))
    return result


def text(result, servers):
    lines = [f"capacity of one server: {result['capacity']:.2f} requests/s"]
    for load, of in result["loads"].items():
        first, gap = ([f"{value * 1e3:.0f}" if value is not None else "-" for value in of[kind]] for kind in ("first token", "gap"))
        lines.append(f"{servers} servers, {load:g} times that: {of['requests']} requests, {of['answers per second']:.2f} answers/s, first token {first[0]} ms (p99 {first[1]}), gap {gap[0]} ms "
                     f"(p99 {gap[1]}), {of['429 with Retry-After']} refused with Retry-After, {of['429 without']} without, failures: {dict(of['failures']) or 'none'}")
    return "\n".join(lines)
