"""An application of Ray Serve: replicas of `qwen-run serve`, and an ingress before them.

  pip install 'ray[serve]' qwen_compiler-*.whl
  cd deploy/ray
  export RAY_USAGE_STATS_ENABLED=0        # else Ray reports its use to its makers
  export RAY_worker_niceness=0            # else the servers have a niceness of 15
  serve run qwen_serve:app model=/models/model.qwen name=qwen

serve.yaml beside this file runs the same with cores, replicas and delays. Clients use http://127.0.0.1:8000 as they use one server.

A replica starts a server on a Unix socket, with a thread for each CPU that Ray gives it. Server and replica end together, and Serve starts another one.
The ingress asks again where a replica ended before its answer did. Requests have seeds, so the second answer has the same tokens: a stream
goes on where it stopped.
"""
import asyncio
import collections
import dataclasses
import fcntl
import json
import logging
import os
import random
import re
import shlex
import shutil
import sys
import tempfile

import aiohttp
import pydantic
import ray
import starlette.requests
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError
from starlette.responses import JSONResponse, Response, StreamingResponse

LOGGER = logging.getLogger("ray.serve")
# The fields that make a prompt, in its order.
PROMPT = ("system", "instructions", "tools", "messages", "prompt", "input")
# A request that ends so many replicas is at fault itself.
TRIES = 3
# The folders of replicas in the folder for temporary files.
FOLDER = "qwen-ray-"
# Headers of one connection.
HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
# What depends on time: comments that keep a connection open, and progress.
TIMED = re.compile(rb'^:|^event: ping|"prompt_progress":')


@dataclasses.dataclass
class Request:
    """A request of HTTP. Ray's router compares the beginnings of `prompt`."""
    method: str
    path: str
    headers: dict
    body: bytes
    prompt: str


def words(value):
    """The texts and numbers of a JSON value, one behind the other."""
    if isinstance(value, dict):
        value = list(value.values())
    return " ".join(map(words, value)) if isinstance(value, list) else str(value)


def refusal(status, kind, message):
    """An error as the server writes it."""
    return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": status}}, status, {"Retry-After": "1"})


def locked(path):
    """A descriptor that locks a folder of this user; nothing if another process locks it."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(folder).st_uid == os.geteuid():
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have removed it before the lock.
            if os.path.samestat(os.fstat(folder), os.lstat(path)):
                return folder
    except OSError:
        pass
    os.close(folder)
    return None


def own_folder():
    """A folder and the descriptor that locks it while this process lives. Removes the folders of killed replicas."""
    with os.scandir(tempfile.gettempdir()) as entries:
        paths = [entry.path for entry in entries if entry.name.startswith(FOLDER)]
    for path in paths:
        if (lock := locked(path)) is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
    while True:
        folder = tempfile.TemporaryDirectory(prefix=FOLDER, ignore_cleanup_errors=True)
        if (lock := locked(folder.name)) is not None:
            return folder, lock


class Stream:
    """The events of an answer, which may come from several servers, one after the other."""

    def __init__(self):
        self.passed, self.ids = collections.Counter(), []

    def begin(self):
        """Another server gives the answer from its beginning."""
        self.rest, self.seen, self.new_ids = b"", collections.Counter(), {}

    def take(self, part):
        """The events that `part` completes and that the client does not have."""
        *events, self.rest = (self.rest + part).split(b"\n\n")
        return b"".join(event + b"\n\n" for event in map(self.named, events) if self.is_new(event))

    def is_new(self, event):
        if TIMED.search(event):
            return self.seen >= self.passed
        # Events of one choice have an order, choices among each other have none.
        choice = re.search(rb'"index":(\d+)', event)
        key = choice and choice[1]
        self.seen[key] += 1
        if self.seen[key] <= self.passed[key]:
            return False
        self.passed[key] += 1
        return True

    def named(self, event):
        """The event with the ids of the first server, which are random."""
        def name(match):
            place = self.new_ids.setdefault(match[1], len(self.new_ids))
            if place == len(self.ids):
                self.ids.append(match[1])
            return b'id":"' + self.ids[place] + b'"'
        return re.sub(rb'id":"([^"]*)"', name, event)


@serve.deployment(
    ray_actor_options={"num_cpus": 1}, max_ongoing_requests=32, max_queued_requests=64, health_check_period_s=5, health_check_timeout_s=10,
    autoscaling_config={"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 12},
    # The public name of this class, ray.serve.llm.request_router.PrefixCacheAffinityRouter, needs ray[llm]. Where a replica has 8 requests more
    # than another one, load counts and not the prompt.
    request_router_config={"request_router_class": "ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router.PrefixCacheAffinityRouter",
                           "request_router_kwargs": {"imbalanced_threshold": 8, "do_eviction": True}})
class Server:
    """A replica: `qwen-run serve` on a Unix socket."""

    async def __init__(self, model, options):
        self.folder, self.lock = own_folder()
        self.socket = f"{self.folder.name}/socket"
        program = shutil.which("qwen-run", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
        if not program:
            raise RuntimeError("no qwen-run beside this Python or in PATH; pip install its wheel")
        threads = max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))
        # The kernel kills the server with its replica, also one that hangs.
        self.process = await asyncio.create_subprocess_exec("setpriv", "--pdeathsig", "KILL", program, "serve", model, "--listen", f"unix:{self.socket}",
                                                            "-t", str(threads), *options, stderr=asyncio.subprocess.PIPE, limit=1 << 20)
        line = b""
        async for line in self.lines():
            if b" answers on " in line:
                break
        else:
            raise RuntimeError(f"no server: {line.decode().strip()}")
        self.client = aiohttp.ClientSession(connector=aiohttp.UnixConnector(self.socket, force_close=True, limit=0), auto_decompress=False,
                                            timeout=aiohttp.ClientTimeout(total=None))
        self.watcher = asyncio.create_task(self.watch())

    async def lines(self):
        async for line in self.process.stderr:
            LOGGER.info(line.decode(errors="replace").rstrip())
            yield line

    async def watch(self):
        """Ends the replica with its server."""
        async for _ in self.lines():
            pass
        self.folder.cleanup()
        os._exit(1)

    async def check_health(self):
        async with self.client.get("http://localhost/health", timeout=aiohttp.ClientTimeout(total=8)) as answer:
            if answer.status != 200:
                raise RuntimeError(f"/health answers {answer.status}")

    async def answer(self, request):
        """Status, headers and the body; of a stream, whose body is None, then its bytes."""
        try:
            async with self.client.request(request.method, "http://localhost" + request.path, headers=request.headers, data=request.body) as answer:
                body = None if answer.content_type == "text/event-stream" else await answer.read()
                yield answer.status, {name: value for name, value in answer.headers.items() if name.lower() not in HOP}, body
                if body is None:
                    async for part in answer.content.iter_any():
                        yield part
        except aiohttp.ClientError as error:
            raise ConnectionError(f"the server left: {error}") from None


# One ingress: the routers of several would have to agree about the replicas.
@serve.deployment(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=1024)
class Ingress:
    """Passes requests on to replicas and their answers back."""

    def __init__(self, servers):
        self.servers = servers.options(stream=True, method_name="answer")

    async def __call__(self, request: starlette.requests.Request) -> Response:
        answer = self.answer(await self.request_of(request))
        try:
            status, headers = await anext(answer)
        except BackPressureError:
            return refusal(429, "rate_limit_error", "all servers are busy; try again later")
        except (RayActorError, ConnectionError):
            return refusal(503, "server_error", f"{TRIES} servers ended while they answered this request")
        return StreamingResponse(answer, status, headers)

    async def request_of(self, request):
        body = await request.body()
        prompt = request.url.path
        try:
            fields = json.loads(body)
            prompt = words([fields[name] for name in PROMPT if name in fields]) or prompt
            # Only a seed makes a second answer the same.
            if fields.get("stream") is True and fields.get("seed") in (None, -1):
                body = json.dumps(fields | {"seed": random.getrandbits(31)}).encode()
        except (ValueError, TypeError, AttributeError):
            pass  # The server tells what is wrong.
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return Request(request.method, path, {name: value for name, value in request.headers.items() if name not in HOP}, body, prompt)

    async def answer(self, request):
        """Status and headers, then the bytes of the answer."""
        stream, tries, has_begun = Stream(), 0, False
        while True:
            stream.begin()
            try:
                async for part in self.servers.remote(request):
                    if isinstance(part, tuple):
                        status, headers, body = part
                        if has_begun and status != 200:
                            raise ConnectionError(f"the second answer has the status {status}")
                        if not has_begun:
                            yield status, headers
                        has_begun = True
                        if body is not None:
                            yield body
                            return
                    elif events := stream.take(part):
                        yield events
                return
            except BackPressureError:
                # What was taken once is not refused later.
                if not tries:
                    raise
            except (RayActorError, ConnectionError) as error:
                tries += 1
                LOGGER.warning(f"{request.path}: try {tries} of {TRIES}: {error}".split("\n")[0])
                if tries == TRIES:
                    raise
            await asyncio.sleep(0.5)


class Settings(pydantic.BaseModel):
    # A file on each node, or what else `qwen-run serve` takes.
    model: str
    # Its name in the API.
    name: str = "qwen"
    # More options of `qwen-run serve`, as on a command line.
    options: str = ""


def app(settings: Settings) -> serve.Application:
    return Ingress.bind(Server.bind(settings.model, ["--name", settings.name, *shlex.split(settings.options)]))
