"""What attackers, lagging clients and a lack of means do to qwen-run serve. serve.py calls these."""
import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import time

from serve_http import wire
from server import Server

HOST = "\nHost: localhost"
JSON_TYPE = "\nContent-Type: application/json"


def request(body, path="/v1/completions"):
    text = json.dumps(body).encode()
    return wire(f"POST {path} HTTP/1.1{HOST}{JSON_TYPE}\nContent-Length: {len(text)}") + text


def wait_for(server, name, least):
    while server.metric(name) < least:
        time.sleep(0.002)


def ends(checks, model):
    """No part of the server calls one that has ended: at one signal, at two, when --drain expires, and when clients leave meanwhile."""
    long = {"prompt": "x", "n": 64, "max_tokens": 1000, "ignore_eos": True}
    for what, options, signals, leaves, body in (
            ("one signal", (), [signal.SIGTERM], False, long | {"n": 2, "max_tokens": 100}),
            ("two SIGTERM", (), [signal.SIGTERM] * 2, False, long), ("two SIGINT", (), [signal.SIGINT] * 2, False, long),
            ("two signals and no client", (), [signal.SIGTERM, signal.SIGINT], True, long),
            ("an expired --drain", ("--drain", "0.02"), [signal.SIGTERM], False, long), ("a signal and no client", (), [signal.SIGTERM], True, long)):
        server = Server(model, "-t", "1", *options)
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        for i, client in enumerate(clients[1:]):
            client.sendall(request(body | {"stream": i == 0}))
        clients[0].sendall(b"GET /hea")
        wait_for(server, "vllm:num_requests_running", 3)
        for i, number in enumerate(signals):
            server.process.send_signal(number)
            if leaves and i == 0:
                for client in clients:
                    client.close()
            time.sleep(0.01)
        status = server.process.wait(timeout=60)
        server.reader.join()
        odd = [line for line in server.log if not re.match(r"req-\w+ POST /v1/completions (200|499|503) |req-\w+ GET /metrics 200 ", line)]
        checks.expect(f"{what}: status and other lines", (status, odd), (0, []))
        for client in clients:
            client.close()


def counted_bytes(checks, server):
    """All that a connection sends counts: the framing of a body, its trailers, and what comes before a request."""
    head = wire(f"POST /tokenize HTTP/1.1{HOST}{JSON_TYPE}\nTransfer-Encoding: chunked")
    long = b"x" * (1 << 20)
    body = b'{"prompt": "Hi"}'
    plain = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    for what, data, status in (
            ("small chunks", plain + b"0\r\n\r\n", 200), ("a trailer", plain + b"0\r\nX: y\r\n\r\n", 200),
            ("a long extension", b"1;" + long + b"\r\n", 413), ("a long size", b"0" * (1 << 20) + b"\r\n", 413),
            ("a long extension of the last chunk", plain + b"0;" + long, 413),
            ("many extensions", (b"1;" + b"x" * 4000 + b"\r\n \r\n") * 64, 413),
            ("a long trailer", plain + b"0\r\nX: " + long, 413), ("many trailers", plain + b"0\r\n" + b"X: y\r\n" * 40000, 413),
            ("many small chunks", b"1\r\n \r\n" * 50000, 413)):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.sendall(head + data)
            response = http.client.HTTPResponse(client, method="POST")
            response.begin()
            checks.expect(what, response.status, status)
    # Nobody answers lines that are no request.
    for count, expected in ((100, b"HTTP/1.1 200"), (1 << 20, b"")):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            text = b""
            with contextlib.suppress(ConnectionError):
                client.sendall(b"\r\n" * count + wire(f"GET /health HTTP/1.1{HOST}"))
                text = client.recv(12)
            checks.expect(f"{count} empty lines", text, expected)


def lagging_reader(checks, server):
    """A client that does not read keeps nobody out, also of the queue, and gets the same answer when it reads."""
    body = {"prompt": "x", "n": 8, "logprobs": 20, "max_tokens": 120, "ignore_eos": True, "stream": True, "seed": 5}

    def choices(text):
        found = {}
        for line in text.splitlines():
            for choice in json.loads(line[6:])["choices"] if line.startswith("data: {") else ():
                old = found.setdefault(choice["index"], ["", []])
                old[0] += choice["text"]
                old[1] += (choice["logprobs"] or {}).get("tokens", [])
        return found

    whole = choices(server.send("POST", "/v1/completions", body)[2])
    checks.expect("choices", [len(tokens) for _, tokens in whole.values()], [120] * 8)
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(3):
            clients.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60)))
            clients[-1].sendall(request(body))
        end = time.time() + 60
        while server.metric("vllm:num_requests_running") or server.metric("vllm:num_requests_waiting") < 3:
            if time.time() > end:
                return checks.check(False, "requests whose clients do not read stay in the batch")
            time.sleep(0.01)
        checks.expect("an answer meanwhile", len(server.post("/v1/completions", prompt="x", max_tokens=5)["choices"]), 1)
        for client in clients[:2]:
            response = http.client.HTTPResponse(client, method="POST")
            response.begin()
            checks.check(choices(response.read().decode()) == whole, "an answer that was held differs")
    while server.metric("vllm:num_requests_waiting"):
        time.sleep(0.01)


def unread_log(checks, model):
    """A log that nobody reads stops no answer, and neither does one whose reader has left."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    process = subprocess.Popen(["qwen-run", "serve", model, "--listen", "127.0.0.1:0", "-t", "1", "--name", "a\x1b\nb"], stderr=writer)
    os.close(writer)
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(reader, 1)
    checks.check(line.startswith(rb"qwen-run: a\u001b\nb answers on "), f"a name with control characters: {line}")
    server = http.client.HTTPConnection(line.decode().split("//")[1].strip(), timeout=10)

    def ask():
        server.request("GET", "/livez")
        response = server.getresponse()
        response.read()
        return response.status

    checks.expect("answers beside a full log", {ask() for _ in range(200)}, {200})
    os.read(reader, 65536)
    ask()
    lines = os.read(reader, 65536).decode().splitlines()
    checks.check(re.fullmatch(r"qwen-run: 1\d\d lines of the log were dropped, which nobody read", lines[0]), f"the log has {lines}")
    os.close(reader)
    checks.expect("answers without a log", {ask() for _ in range(3)}, {200})
    server.close()
    process.send_signal(signal.SIGTERM)
    checks.expect("the end without a log", process.wait(timeout=60), 0)


def few_descriptors(checks, model):
    """Without descriptors it says so. With few, a new connection takes the place of an idle one, and is refused beside busy ones."""
    def limited(count):
        return ["prlimit", f"--nofile={count}", "qwen-run", "serve", model, "--listen", "127.0.0.1:0", "-t", "1"]

    none = subprocess.run(limited(9), capture_output=True, text=True, timeout=60)
    checks.check(none.returncode == 1 and re.search("no descriptor is left for connections|cannot|Too many open files", none.stderr), f"no descriptor: {none}")
    server = Server(model, program=limited(24))
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        checks.expect("an answer beside idle connections", server.send("GET", "/livez")[0], 200)
        busy = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60)) for _ in range(40)]
        for client in busy:
            with contextlib.suppress(ConnectionError):
                client.sendall(request({"prompt": "x", "n": 16, "max_tokens": 1000, "ignore_eos": True}))
        refused = 0
        for client in busy:
            client.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                try:
                    refused += client.recv(1) == b""
                except ConnectionError:
                    refused += 1
        checks.check(20 < refused < 40, f"{refused} of 40 busy connections were refused")
    end = time.time() + 10
    answer = 0
    while answer != 200 and time.time() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = server.send("GET", "/livez")[0]
    checks.expect("an answer after all", answer, 200)
    checks.expect("status with few descriptors", server.stop()[0], 0)


def few_threads(checks, model):
    """Without the threads that parse requests it does not say that it answers."""
    if b"__asan_init" in pathlib.Path(shutil.which("qwen-run")).read_bytes():
        return
    def limit():
        # The stack of each thread takes a half of the address space.
        resource.setrlimit(resource.RLIMIT_STACK, (4 << 30, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_AS, (7 << 30, 7 << 30))
    result = subprocess.run(["qwen-run", "serve", model, "--listen", "127.0.0.1:0", "-t", "1"], capture_output=True, text=True, timeout=60,
                            preexec_fn=limit)
    expected = "qwen-run: cannot start the thread that parses requests; the system limits threads (ulimit -u, pids.max) or memory\n"
    checks.expect("a server without threads", (result.returncode, result.stderr), (4, expected))


def refused(checks, model, work):
    """What no client could use is refused at the start: keys, a certificate with another's key, a flag that is not set."""
    tls = pathlib.Path(__file__).resolve().parents[1] / "Inputs/tls"
    keys = work / "keys"
    keys.write_bytes(b"# a comment\nsecret\n secret2\n")
    serve = ["qwen-run", "serve", model, "-t", "1", "--listen", "0.0.0.0:0"]
    public = "--listen 0.0.0.0:0 is reachable by other machines: it needs an API key (--api-key-file), or --no-auth"
    no_client = "no client can send the key in a header: it begins or ends with a space"
    for options, variables, message in (
            (["--api-key-file", keys], {}, f"{keys} line 3: {no_client}"), ([], {"QWEN_RUN_API_KEY": "k "}, f"QWEN_RUN_API_KEY: {no_client}"),
            (["--no-auth", "--tls-cert", tls / "cert.pem", "--tls-key", tls / "rsa-key.pem"], {},
             f"--tls-key {tls}/rsa-key.pem is not the key of the certificate in {tls}/cert.pem"),
            *(([], {"QWEN_RUN_NO_AUTH": value}, public) for value in ("0", "no", "False"))):
        result = subprocess.run([*map(str, serve), *map(str, options)], env=os.environ | variables, capture_output=True, text=True, timeout=60)
        checks.expect(f"serve {options} {variables}", (result.returncode, result.stderr), (1, f"qwen-run: {message}\n"))


def addresses(checks, model, work):
    """The address that it prints is one that clients can open. A flag may be a variable."""
    listen = ["[::1]:0", "::1:0"] if pathlib.Path("/proc/net/if_inet6").exists() else ["localhost:0"]
    for address, value in zip(listen, ("1", "yes")):
        server = Server(model, "-t", "1", listen=address, env=os.environ | {"QWEN_RUN_NO_PAGE": value})
        name, port = server.address.removeprefix("http://").rsplit(":", 1)
        checks.expect(f"the address of {address}", name, "[::1]" if len(listen) > 1 else "localhost")
        connection = http.client.HTTPConnection(name.strip("[]"), int(port), timeout=60)
        connection.request("GET", "/")
        checks.expect("the page", connection.getresponse().read(), b'{"status":"ok"}')
        connection.close()
        checks.expect(f"the end at {address}", server.stop()[0], 0)
    # Several addresses answer, and each knows its own Host.
    path = work / "socket"
    server = Server(model, "-t", "1", "--listen", f"unix:{path}", "--listen", "127.0.0.2:0,localhost:0", listen="127.0.0.1:0")
    names = server.addresses
    checks.expect("the addresses", [name.removeprefix("http://").rsplit(":", 1)[0] for name in names], ["127.0.0.1", "unix", "127.0.0.2", "localhost"])
    for name in [name for name in names if name.startswith("http")]:
        host = name.removeprefix("http://")
        connection = http.client.HTTPConnection(*host.split(":"), timeout=60)
        for given, status in ((host, 200), ("127.0.0.9", 403)):
            connection.request("GET", "/health", headers={"Host": given})
            response = connection.getresponse()
            response.read()
            checks.expect(f"{name} for {given}", response.status, status)
        connection.close()
    checks.check(path.is_socket(), "no socket")
    checks.expect("the end at several addresses", server.stop()[0], 0)
    checks.check(not path.exists(), "the socket is left")
