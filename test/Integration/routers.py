"""Routers in front of two servers: all requests get the bits that a server gives itself, also after one of the two was killed.

  routers.py MODEL PACKAGES [REQUESTS]      MODEL is models/stories, compiled

Sends REQUESTS requests through each router, 200 by default. Installs vllm-router and smg in the folder PACKAGES once. Says so and passes
where PyPI cannot be reached.
"""
import contextlib
import http.client
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from checks import Checks
from packages import python_with
from routed import answers, compare, free_port
from server import Server

MODEL, PACKAGES = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
REQUESTS = int(sys.argv[3]) if len(sys.argv) > 3 else 200
# A package, its program with the arguments before those that all have, and its policy.
ROUTERS = (("vllm-router==0.1.17", ["vllm-router"], "round_robin"), ("vllm-router==0.1.17", ["vllm-router"], "cache_aware"),
           ("smg==1.13.0", ["smg", "launch"], "cache_aware"))
checks = Checks()


@contextlib.contextmanager
def router(command, log):
    """The port of a router that has begun."""
    port = free_port()
    process = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())], stdout=log, stderr=log)
    end = time.time() + 120
    try:
        while True:
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("GET", "/v1/models")
                if connection.getresponse().status == 200:
                    break
            if process.poll() is not None or time.time() > end:
                log.seek(0)
                sys.exit(f"{command} does not begin: {log.read()[-2000:]}")
            time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=60)


direct = Server(MODEL)
expected = answers(direct.port, range(REQUESTS))
checks.check(all(isinstance(each, list) and len(each) > 3 for each in expected), f"an answer is {str(expected[0])[:300]}")
direct.stop()
for package, program, policy in ROUTERS:
    python = python_with(package, PACKAGES)
    if not python:
        print(f"skipped: no {package}")
        continue
    servers = [Server(MODEL), Server(MODEL)]
    command = [python.with_name(program[0]), *program[1:], "--policy", policy, "--worker-urls", *(server.address for server in servers)]
    what = f"{package} with {policy}"
    with tempfile.TemporaryFile("w+") as log, router([str(part) for part in command], log) as port:
        compare(checks, what, answers(port, range(REQUESTS)), expected)
        shares = [server.metric("vllm:generation_tokens_total") for server in servers]
        checks.check(min(shares) > 0, f"{what}: the servers wrote {shares} tokens")
        servers[0].process.send_signal(signal.SIGKILL)
        servers[0].process.wait()
        compare(checks, f"{what}, one server killed", answers(port, range(REQUESTS // 4)), expected[:REQUESTS // 4])
    servers[1].stop()
checks.finish()
