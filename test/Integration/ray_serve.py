"""Ray Serve before one or two servers (deploy/ray): answers have the bits of a server alone, also those whose replica ended before they did.

  ray_serve.py SOURCE MODEL PACKAGES      MODEL is models/stories, compiled

Installs Ray and OpenAI's client in the folder PACKAGES once. Says so and passes where PyPI cannot be reached.
"""
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import yaml
from checks import Checks
from packages import check_client, python_with
from routed import answer_of, answers, compare, events_of, free_port, ids_of
from server import JSON, Server

SOURCE, MODEL, PACKAGES = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
RAY, CLIENT = "ray[serve]==2.60.0", "openai==3.54.0"
REQUESTS = 40
# Streams that no client reads to the end before their server is ended.
ANY = {"model": "stories", "stream": True, "temperature": 1}
STREAMS = {"/v1/completions": {**ANY, "prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True, "logprobs": 1},
           "/v1/messages": {**ANY, "messages": [{"role": "user", "content": "A king"}], "max_tokens": 900, "seed": 6},
           "/v1/responses": {**ANY, "input": "A king", "max_output_tokens": 900}}
# `serve run serve.yaml` in a Ray of this process. Tests of lit ignore the signal that ends it.
SERVE_RUN = "import ray, signal; from ray.serve.scripts import cli; signal.signal(signal.SIGINT, signal.default_int_handler); ray.init(include_dashboard=False, namespace='serve', num_cpus=2); cli(['run', 'serve.yaml'])"
checks = Checks()
expect = checks.expect


def servers():
    """The process of each server of a replica, and the process of the replica."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_text().split("\0")
            if str(MODEL) in words and any(word.startswith("unix:") for word in words):
                found[int(path.parent.name)] = int(path.with_name("stat").read_text().rsplit(")", 1)[1].split()[1])
    return found


def wait(what, condition, seconds=60):
    """Waits until a condition holds."""
    end = time.time() + seconds
    while not condition():
        if time.time() > end:
            raise TimeoutError(f"after {seconds} s, still not so: {what}")
        time.sleep(0.3)
    took(what)


def took(what):
    global moment
    print(f"{time.time() - moment:5.1f} s: {what}", flush=True)
    moment = time.time()


def config(port):
    """serve.yaml with this model, a thread each, and delays for a test."""
    text = yaml.safe_load((SOURCE / "deploy/ray/serve.yaml").read_text())
    text["http_options"]["port"] = port
    application, = text["applications"]
    application["args"] |= {"model": str(MODEL), "name": "stories", "options": "--keep-alive 0.1"}
    server, = application["deployments"]
    server["ray_actor_options"] = {"num_cpus": 0.5}
    server |= {"health_check_period_s": 1, "health_check_timeout_s": 2, "graceful_shutdown_timeout_s": 1, "max_ongoing_requests": 4, "max_queued_requests": 8}
    server["autoscaling_config"] |= {"target_ongoing_requests": 1, "upscale_delay_s": 0, "downscale_delay_s": 1, "metrics_interval_s": 0.5, "look_back_period_s": 1}
    return text


def started(command, folder, port, log):
    """A process that serves the application. On a busy machine, Ray may give up while it starts."""
    # By default, workers of Ray have a niceness of 15: a busy machine would hardly run them.
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_TMPDIR": str(folder), "TMPDIR": str(folder), "HOME": str(folder)}
    for _ in range(3):
        process = subprocess.Popen(command, cwd=folder / "app", env=environment, stdout=log, stderr=log)
        while process.poll() is None:
            with contextlib.suppress(OSError):
                if status_of(port) == 200:
                    return process
            time.sleep(0.1)
    raise ChildProcessError("Ray does not start")


@contextlib.contextmanager
def ray_serve(python, folder, port):
    """Runs the application in a copy of deploy/ray, without Ray's dashboard; gives the file of its log."""
    shutil.copytree(SOURCE / "deploy/ray", folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "app/serve.yaml").write_text(yaml.safe_dump(config(port)))
    with open(folder / "log", "w") as log:
        try:
            process = started([python, "-c", SERVE_RUN], folder, port, log)
            took("the application answered")
            try:
                yield
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(timeout=60)
        except BaseException:
            print((folder / "log").read_text()[-5000:])
            raise


def status_of(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/v1/models")
    return connection.getresponse().status


class Load:
    """Clients that ask until they are stopped, and the answers. Who is refused comes again."""

    def __init__(self, port, clients):
        self.port, self.found, self.going = port, [], True
        self.threads = [threading.Thread(target=self.ask, args=(first,)) for first in range(clients)]

    def ask(self, number):
        while self.going:
            number = (number + 1) % REQUESTS
            try:
                while (answer := answer_of(self.port, number))[0] == 429:
                    time.sleep(1)
                self.found.append((number, answer))
            except OSError as error:
                self.found.append((number, repr(error)))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.going = False
        for thread in self.threads:
            thread.join()


def check_prefixes(port):
    """Requests with one beginning run where the first of them ran."""
    for king in range(2):
        body = {"model": "stories", "prompt": f"The story of king {king} and his ships and his seas. " * 12, "max_tokens": 1}
        known = []
        for _ in range(6):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/v1/completions", json.dumps(body), JSON)
            known.append(json.load(connection.getresponse())["usage"]["prompt_tokens_details"]["cached_tokens"] > 0)
        expect(f"which requests of king {king} knew the beginning", known, [False] + [True] * 5)


def crowd(port):
    """Status, Retry-After and answer of each of 24 requests at once."""
    def one(number):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps({"model": "stories", "prompt": "The sea", "seed": number, "max_tokens": 8}), JSON)
        response = connection.getresponse()
        text = response.read()
        return response.status, response.headers["Retry-After"], json.loads(text)
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        return list(pool.map(one, range(24)))


def begun(port, path):
    """The connection and the response of a stream, and its first line."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", path, json.dumps(STREAMS[path]), JSON)
    response = connection.getresponse()
    return connection, response, response.readline()


def check_streams(streams, direct):
    """Streams whose server ended in their middle have the events that they have without that."""
    for path, (connection, response, text) in streams.items():
        text += response.read()
        connection.close()
        seed = re.search(rb'"x_seed":([0-9]+)', text)
        right = direct.send("POST", path, STREAMS[path] | ({"seed": int(seed[1])} if seed else {}))[2].encode()
        checks.check(events_of(text) == events_of(right), f"a stream of {path} went on otherwise: {text[-300:]}")
        expect(f"ids of a stream of {path}", ids_of(text), ids_of(right))


def aborted(port):
    """Requests that run, and those that were stopped."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return [int(float(re.search(rf"^vllm:{name} (.*)$", text, re.M)[1]))
            for name in ('num_requests_running{model_name="stories"}', 'request_success_total{model_name="stories",finished_reason="abort"}')]


def check_leaving(port):
    """Clients leave in the middle of their streams: the server stops the answers."""
    for path in STREAMS:
        before = aborted(port)[1]
        connection, response, _ = begun(port, path)
        response.close()
        connection.close()
        wait(f"an answer of {path} without a client was stopped", lambda: aborted(port) == [0, before + 1])


def check_ends(port, direct):
    """In the middle of streams, one of two replicas is killed, and the server of the other one hangs until a health check ends it. All requests are
    answered, by the replicas that take their place."""
    streams = {path: begun(port, path) for path in STREAMS}
    found = servers()
    for server in found:
        os.kill(server, signal.SIGSTOP)
    os.kill(next(iter(found.values())), signal.SIGKILL)
    given = crowd(port)
    check_streams(streams, direct)
    wait("both replicas were replaced", lambda: len(servers()) == 2 and not found.keys() & servers().keys())
    expect("statuses of a crowd", {status for status, *_ in given}, {200, 429})
    for number, (status, again, answer) in enumerate(given):
        if status == 429:
            expect("when to come again", again, "1")
        else:
            expect(f"answer {number} of a crowd", answer["choices"], direct.post("/v1/completions", model="stories", prompt="The sea", seed=number, max_tokens=8)["choices"])


def check(port, direct, expected):
    compare(checks, "one replica", answers(port, range(REQUESTS)), expected)
    check_client(checks, "OpenAI", CLIENT, PACKAGES, SOURCE / "test/Integration/client.py", f"http://127.0.0.1:{port}/v1")
    took("clients had answers")
    with Load(port, 3) as load:
        wait("two replicas", lambda: len(servers()) == 2)
        check_prefixes(port)
        took("requests ran where their beginnings had run")
        check_ends(port, direct)
    compare(checks, "two replicas, which ended", [answer for _, answer in load.found], [expected[number] for number, _ in load.found])
    wait("one replica", lambda: len(servers()) == 1)
    check_leaving(port)


def main(python, folder):
    direct = Server(MODEL)
    expected = answers(direct.port, range(REQUESTS))
    port = free_port()
    with ray_serve(python, folder, port):
        check(port, direct, expected)
    took("the end")
    expect("servers after the end", servers(), {})
    direct.stop()
    text = (folder / "log").read_text()
    for path in STREAMS:
        checks.check(f"{path}: try 1 of 3" in text, f"no stream of {path} was asked again: {text[-2000:]}")


moment = time.time()
if python := python_with(RAY, PACKAGES):
    # The paths of Ray's sockets have at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as name:
        main(python, pathlib.Path(name))
else:
    print(f"skipped: no {RAY}")
checks.finish()
