"""Starts and stops `qwen-run serve` for the tests of the server."""
import atexit
import http.client
import json
import signal
import subprocess
import sys
import threading

JSON = {"Content-Type": "application/json"}


class Server:
    """A server on a free port, with what it prints."""

    def __init__(self, model, *options, listen="127.0.0.1:0", env=None, program=None):
        """`program` and its arguments take the place of `qwen-run serve`."""
        command = program or ["qwen-run", "serve", model, "--listen", listen, *options]
        self.process = subprocess.Popen([str(c) for c in command], stderr=subprocess.PIPE, text=True, env=env)
        atexit.register(self.process.kill)
        # A model of the cache has lines of its own before.
        self.said = ""
        for line in self.process.stderr:
            self.said += line
            if "answers on" in line:
                break
        else:
            sys.exit(f"no server: {self.said}")
        self.addresses = line.split(" answers on ")[1].strip().split(", ")
        self.address = self.addresses[0]
        self.port = int(self.address.rsplit(":", 1)[1]) if listen.startswith("127") else None
        # A full pipe would stop the server.
        self.log = []
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def send(self, method, path, body=None, headers=None):
        """Status, headers and body of an answer."""
        connection = self.connect()
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {**(JSON if body is not None else {}), **(headers or {})})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, response.headers, text

    def post(self, path, **body):
        status, _, text = self.send("POST", path, body)
        if status != 200:
            sys.exit(f"{path} {body}: {status} {text}")
        return json.loads(text)

    def metric(self, name):
        lines = self.send("GET", "/metrics")[2].splitlines()
        return float(next(line for line in lines if line.startswith(name + "{")).rsplit(" ", 1)[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=300)
        self.reader.join()
        return status, "".join(self.log)
