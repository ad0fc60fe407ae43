"""Many clients of qwen-run serve at once: some leave, some read slowly, some send damaged requests.

  serve_load.py MODEL [--shape NAME] [--clients N] [--requests N] [--tokens N] [--damaged FRACTION] [--crowd N] [--seed N]

MODEL is a compiled model. With --shape, it is made if there is none: random weights in the shape of bench/make_checkpoint.py. Answers have
up to --tokens tokens. Clients leave while their request waits in the queue, while its prompt runs and while it is answered.

Every other request must get the answer that it gets alone. At the end the server must hold no more memory, descriptors or pages than
halfway. A crowd of connections with half a request must not slow down others; slowhttptest makes further crowds where it is installed.
"""
import argparse
import collections
import contextlib
import http.client
import json
import pathlib
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time

from server import Server

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--shape")
parser.add_argument("--clients", type=int, default=16)
parser.add_argument("--requests", type=int, default=400)
parser.add_argument("--tokens", type=int, default=61)
parser.add_argument("--damaged", type=float, default=0.2)
parser.add_argument("--crowd", type=int, default=0)
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()
ROOT = pathlib.Path(__file__).resolve().parents[2]

PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize", "/detokenize")
# Seconds; a machine with other work may stop the server for a minute.
PATIENCE = 600
# What a client does. Clients with damaged requests are apart.
KINDS = ("answer", "answer", "leaves at once", "leaves later", "leaves in prefill", "leaves in decode", "half-closes", "reads slowly")
ODD = (None, True, -1, 0, 2**63, -2**63, 1e308, 0.5, "", "x" * 3000, "\ud800", "\0", [], {}, [[]], [None], {"a": []}, [1] * 2000, [2**40],
       ["a", 1], [[[[[[]]]]]], {"5": 1}, {"-5": "x"})


def body_of(number, chat):
    """A request that has one answer."""
    words = ("The king", "Once upon a time", "She said", "It was late", "word " * 150)[number % 5]
    body = {"seed": number, "max_tokens": 1 + (5 + 7 * number) % options.tokens, "n": 1 + number % 2, "logprobs": True if chat else number % 3,
            "stream": number % 4 == 0, "frequency_penalty": number % 3 / 2}
    return {**body, "messages": [{"role": "user", "content": words}]} if chat else {**body, "prompt": words}


def damaged(random_numbers, body):
    """The text of a body with a value replaced, a member added, or bytes changed."""
    body = dict(body)
    kind = random_numbers.randrange(3)
    if kind == 0:
        body[random_numbers.choice(list(body))] = random_numbers.choice(ODD)
    elif kind == 1:
        body[random_numbers.choice(("stop", "logit_bias", "stop_token_ids", "tools", "temperature", "top_k", "min_tokens", "stream_options",
                                    "chat_template_kwargs", "truncate_prompt_tokens", "input", "tokens", "echo", "cache_salt", "odd"))] = \
            random_numbers.choice(ODD)
    text = bytearray(json.dumps(body).encode())
    if kind == 2:
        for _ in range(random_numbers.randrange(1, 6)):
            at = random_numbers.randrange(len(text))
            text[at:at + random_numbers.randrange(3)] = random_numbers.randbytes(random_numbers.randrange(3))
            text = text or bytearray(b" ")
    return bytes(text)


class Load:
    def __init__(self):
        self.server = Server(options.model, "--sequences", "8", "--queue", "96", "--kv-pages", "72", "--check", "off")
        self.port = self.server.port
        self.failures, self.counts, self.lock = [], collections.Counter(), threading.Lock()
        self.left = options.requests

    def fail(self, what):
        with self.lock:
            self.failures.append(what)

    def send(self, path, body, half_close=False):
        """A socket on which a request was sent."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                       f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        if half_close:
            client.shutdown(socket.SHUT_WR)
        return client

    def answer(self, path, body):
        """Status and text of an answer; waits while the queue is full."""
        while True:
            with self.send(path, body) as client:
                response = http.client.HTTPResponse(client)
                response.begin()
                text = response.read().decode()
            if response.status != 429:
                return response.status, text
            self.counts["full"] += 1
            time.sleep(0.02)

    def content(self, path, body):
        """What does not change from one answer to the next."""
        status, text = self.answer(path, json.dumps(body).encode())
        if status != 200:
            return f"{status} {text}"
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")] or [json.loads(text)]
        if any("error" in event for event in events):
            return text
        choices = collections.defaultdict(list)
        for choice in (choice for event in events for choice in event["choices"]):
            choices[choice["index"]].append([choice.get("text", choice.get("delta", choice.get("message"))), choice["logprobs"],
                                             choice["finish_reason"]])
        return choices

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", "/metrics")
        return float(re.search(rf"^{name}{{.*}} (.*)$", connection.getresponse().read().decode(), re.M)[1])

    def run_one(self, random_numbers, expected):
        number = random_numbers.randrange(len(expected) // 2)
        chat = random_numbers.random() < 0.5
        path, body = PATHS[chat], body_of(number, chat)
        if random_numbers.random() < options.damaged:
            path = random_numbers.choice(PATHS)
            text = damaged(random_numbers, body)
            status, answer = self.answer(path, text)
            self.counts[f"damaged: {status}"] += 1
            if status != 200 and (status not in (400, 404) or not json.loads(answer)["error"]["message"]):
                self.fail(f"{path} {text}: {status} {answer}")
            return
        kind = random_numbers.choice(KINDS)
        if kind != "answer":
            kind = self.leave(kind, path, body, random_numbers)
        elif self.content(path, body) != expected[number, chat]:
            self.fail(f"{path} {body} has another answer")
        self.counts[kind] += 1

    def leave(self, kind, path, body, random_numbers):
        """Sends a request whose answer is long and leaves before its end; what it did."""
        body = {**body, "max_tokens": 600, "ignore_eos": True, "stream": True, "return_progress": True}
        if kind == "leaves in prefill":
            words = " ".join(random_numbers.choices(("king", "sea", "old", "she", "ran", "gold"), k=400))
            body |= {"messages": [{"role": "user", "content": words}]} if "messages" in body else {"prompt": words}
        text = b""
        with self.send(path, json.dumps(body).encode(), kind == "half-closes") as client:
            if kind == "leaves later":
                time.sleep(random_numbers.random() / 5)
            elif kind == "leaves in prefill":
                text = self.read_until(client, b'"prompt_progress"')
                done, total = (re.search(rb'"%s":(\d+)' % name, text) for name in (b"processed", b"total"))
                if done and done[1] == total[1]:
                    kind = "leaves after prefill"
            elif kind == "leaves in decode":
                for _ in range(random_numbers.randrange(1, 9)):
                    text += self.read_until(client, b'"text":' if "prompt" in body else b'"content":')
            elif kind == "half-closes":
                while client.recv(65536):
                    pass
            elif kind == "reads slowly":
                for _ in range(20):
                    client.recv(10)
                    time.sleep(0.005)
        return "is turned away" if text.startswith(b"HTTP/1.1 429") else kind

    @staticmethod
    def read_until(client, mark):
        """What comes up to a part with `mark`, or to the end."""
        text = b""
        while mark not in text and (part := client.recv(65536)):
            text += part
        return text

    def work(self, seed, expected):
        random_numbers = random.Random(seed)
        while True:
            with self.lock:
                self.left -= 1
                if self.left < 0:
                    return
            try:
                self.run_one(random_numbers, expected)
            except Exception as error:  # a thread's error must reach the end
                self.fail(f"{type(error).__name__}: {error}")

    def held(self):
        """MiB of memory and number of descriptors of the server when nothing runs."""
        end = time.time() + PATIENCE
        busy = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        while any(self.metric(name) for name in busy):
            if time.time() > end:
                self.fail("requests without a client hold sequences, places or pages")
                break
            time.sleep(0.05)
        time.sleep(0.1)
        process = pathlib.Path(f"/proc/{self.server.process.pid}")
        memory = int(re.search(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())[1]) // 1024
        return memory, len(list((process / "fd").iterdir()))

    def seconds(self):
        """The least time of a request, on a machine that may have other work."""
        def one():
            start = time.time()
            self.answer(PATHS[0], json.dumps(body_of(1, False)).encode())
            return time.time() - start
        return min(one() for _ in range(100))

    @contextlib.contextmanager
    def half_requests(self):
        with contextlib.ExitStack() as stack:
            for _ in range(options.crowd):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", self.port)))
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: loc")
            yield

    @contextlib.contextmanager
    def slow_requests(self, kind):
        """Requests whose header (-H), body (-B) or reading (-X) is slow."""
        command = ["slowhttptest", kind, "-c", options.crowd, "-r", 1000, "-i", 1, "-l", 600, "-f", "application/json", "-u",
                   f"http://127.0.0.1:{self.port}{PATHS[0] if kind == '-B' else '/openapi.json'}"]
        attack = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        try:
            time.sleep(options.crowd / 1000 + 1)
            yield
            if attack.poll() is not None:
                self.fail(f"slowhttptest {kind} ended with {attack.returncode}")
        finally:
            attack.terminate()
            attack.wait()

    def crowd(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        crowds = {"half requests": self.half_requests()}
        if shutil.which("slowhttptest"):
            crowds |= {f"slowhttptest {kind}": self.slow_requests(kind) for kind in ("-H", "-B", "-X")}
        for name, crowd in crowds.items():
            alone = self.seconds()
            with crowd:
                beside = self.seconds()
            print(f"a request takes {1000 * alone:.1f} ms alone, {1000 * beside:.1f} ms beside {options.crowd} connections of {name}")
            if beside > 2 * alone:
                self.fail(f"a crowd of {name} slows down the others")

    def run(self, requests, expected, seed):
        self.left = requests
        threads = [threading.Thread(target=self.work, args=(seed + i, expected)) for i in range(options.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.held()


def make_model():
    checkpoint = options.model + ".checkpoint"
    tokenizer = ROOT / "test/Inputs/tokenizer/qwen2"
    subprocess.run([sys.executable, ROOT / "bench/make_checkpoint.py", options.shape, checkpoint, "--tokenizer", tokenizer], check=True)
    subprocess.run(["qwen-opt", checkpoint, "-o", options.model], check=True, stderr=subprocess.DEVNULL)
    shutil.rmtree(checkpoint)


if options.shape and not pathlib.Path(options.model).exists():
    make_model()
load = Load()
try:
    expected = {(number, chat): load.content(PATHS[chat], body_of(number, chat)) for number in range(30) for chat in (False, True)}
    memory, descriptors = load.run(options.requests // 2, expected, 1000 * options.seed)
    if options.crowd:
        load.crowd()
    memory_after, descriptors_after = load.run(options.requests // 2, expected, 1000 * options.seed + options.clients)
    if memory_after > memory * 1.1 + 32:
        load.fail(f"the server has {memory_after} MiB after {memory} MiB")
    if descriptors_after > descriptors + 2:
        load.fail(f"the server has {descriptors_after} descriptors after {descriptors}")
    print(f"{dict(load.counts)}, {memory} and {memory_after} MiB, {descriptors} and {descriptors_after} descriptors")
finally:
    status, log = load.server.stop()
if status:
    load.fail(f"the server ended with {status}: {log[-2000:]}")
for failure in load.failures[:10]:
    print(failure[:1000])
sys.exit(1 if load.failures else 0)
