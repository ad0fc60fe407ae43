"""A server with the paths of qwen-run serve whose answers a test writes."""
import http.server
import json
import mimetypes
import pathlib
import socket
import struct
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "Integration"))
from serve_http import PAGE  # noqa: E402


class Stream:
    """The answer to a request, event by event, in the form of qwen-run serve."""

    def __init__(self, handler, body):
        self.handler, self.body, self.tokens, self.begun = handler, body, 0, False
        self.base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake", "x_seed": body.get("seed", 7)}

    def refuse(self, status, message, headers=None, **more):
        """Answers with an error in place of a stream."""
        self.handler.reply(status, {"error": {"message": message, "type": "x", "param": None, "code": None, **more}}, headers)

    def send(self, text):
        if not self.begun:
            self.begun = True
            self.handler.send_response(200)
            self.handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.handler.send_header("Cache-Control", "no-cache")
            self.handler.send_header("Transfer-Encoding", "chunked")
            self.handler.end_headers()
            self.delta(role="assistant", content="")
        data = text.encode(errors="surrogatepass")
        self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.handler.wfile.flush()

    def event(self, **more):
        self.send("data: " + json.dumps({**self.base, "choices": [], **more}, separators=(",", ":")) + "\n\n")

    def delta(self, index=0, logprobs=None, finish=None, **delta):
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        self.event(choices=[choice | ({"stop_reason": None} if finish else {})])

    def text(self, text, index=0, size=0):
        """Text, in pieces of `size` characters if it is given."""
        size = size or max(len(text), 1)
        for start in range(0, len(text), size):
            self.tokens += 1
            self.delta(index=index, content=text[start:start + size])

    def reasoning(self, text):
        self.delta(reasoning_content=text, reasoning=text)

    def token(self, text, logprob, others):
        """A token with its log-probability and those of others, if the request asked for them."""
        def entry(token, value):
            return {"token": token, "logprob": value, "bytes": list(token.encode())}
        self.tokens += 1
        content = [{**entry(text, logprob), "top_logprobs": [entry(*other) for other in others[:self.body.get("top_logprobs") or 0]]}]
        self.delta(content=text, logprobs={"content": content, "refusal": None} if self.body.get("logprobs") else None)

    def progress(self, done, total):
        self.event(prompt_progress={"total": total, "cache": 0, "processed": done, "time_ms": 1.0})

    def finish(self, reason="stop", index=0):
        self.delta(index=index, finish=reason)

    def end(self):
        """The last events of an answer that ends well."""
        usage = {"prompt_tokens": 10, "completion_tokens": self.tokens, "total_tokens": 10 + self.tokens,
                 "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}}
        timings = {"cache_n": 0, "prompt_n": 10, "prompt_ms": 100.0, "prompt_per_second": 100.0, "predicted_n": self.tokens,
                   "predicted_ms": 1000.0, "predicted_per_second": float(self.tokens)}
        self.event(usage=usage, timings=timings)
        self.send("data: [DONE]\n\n")
        self.handler.wfile.write(b"0\r\n\r\n")

    def die(self):
        """Resets the connection, as a server that is killed does."""
        self.handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.handler.connection.close()
        self.handler.close_connection = True


def answer(text, size=0):
    """A script that answers with a text."""
    def script(stream):
        stream.text(text, size=size)
        stream.finish()
        stream.end()
    return script


def held(before, event, after="", **finish):
    """A script that waits for an event between two texts."""
    def script(stream):
        stream.text(before)
        event.wait(10)
        if after:
            stream.text(after)
        stream.finish(**finish)
        stream.end()
    return script


class FakeServer:
    """Serves the files of `page`, answers of the real server by their paths, and answers that `script` writes to the stream of each request."""

    def __init__(self, page, facts):
        self.page, self.facts = pathlib.Path(page).resolve(), facts
        self.script, self.key, self.requests, self.faults = answer("Hello."), None, [], []
        # Events that answers of paths wait for.
        self.waits = {}
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def reply(self, status, body, headers=None, kind="application/json"):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                path = self.path.split("?")[0]
                fake.requests.append(("GET", self.path, dict(self.headers), None))
                file = fake.page / (path.lstrip("/") or "index.html")
                if fake.page in file.parents and file.is_file():
                    kind = {".js": "text/javascript", ".woff2": "font/woff2"}.get(file.suffix) or mimetypes.guess_type(file.name)[0]
                    return self.reply(200, file.read_bytes(), PAGE | {"Cache-Control": "no-cache"}, kind + "; charset=utf-8")
                if fake.key and path != "/health" and self.headers["Authorization"] != "Bearer " + fake.key:
                    return self.reply(401, {"error": {"message": "an API key is needed", "type": "x", "param": None, "code": "invalid_api_key"}})
                if path in fake.waits:
                    fake.waits[path].wait(10)
                if path not in fake.facts:
                    return self.reply(404, {"error": {"message": "no such path"}})
                self.reply(200, fake.facts[path].encode())

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                fake.requests.append(("POST", self.path, dict(self.headers), body))
                if fake.key and self.headers["Authorization"] != "Bearer " + fake.key:
                    return self.reply(401, {"error": {"message": "an API key is needed", "type": "x", "param": None, "code": "invalid_api_key"}})
                if not self.path.endswith("/chat/completions"):
                    return self.reply(404, {"error": {"message": "no such path"}})
                try:
                    fake.script(Stream(self, body))
                except OSError:
                    fake.faults.append("left")

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def asked(self):
        """The bodies of the requests for an answer."""
        return [body for method, path, _, body in self.requests if method == "POST" and path.endswith("/chat/completions")]


class Foreign:
    """Another server: who connects (a hint such as preconnect sends nothing), and what is asked."""

    def __init__(self):
        self.connections, self.requests = 0, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.count, daemon=True).start()

    def count(self):
        while True:
            client, _ = self.socket.accept()
            self.connections += 1
            threading.Thread(target=self.read, args=(client,), daemon=True).start()

    def read(self, client):
        with client:
            if line := client.makefile("rb").readline():
                self.requests.append(line.decode("latin-1").strip())
