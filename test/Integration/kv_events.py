"""A router's index, which it makes of the events of a server alone, predicts the cached tokens of each prompt.

  kv_events.py MODEL PACKAGES      MODEL is models/stories, compiled

Installs pyzmq and msgspec in the folder PACKAGES once. Says so and passes where PyPI cannot be reached.
"""
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from checks import Checks, matches
from packages import import_from
from server import Server

MODEL, PACKAGES = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
if not all(import_from(package, PACKAGES) for package in ("pyzmq==27.1.0", "msgspec==0.20.0")):
    print("skipped: no pyzmq or no msgspec")
    sys.exit()
import msgspec  # noqa: E402
import zmq  # noqa: E402

PAGE = 64
TOPIC = b"kv@pod@stories"
END = b"\xff" * 8
checks = Checks()
expect = checks.expect


# What vLLM's subscribers declare.
class Event(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    pass


class BlockStored(Event):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[str, ...] | None] | None = None


class BlockRemoved(Event):
    block_hashes: list[int]
    medium: str | None


class AllBlocksCleared(Event):
    pass


class Batch(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


DECODER = msgspec.msgpack.Decoder(Batch)
context = zmq.Context()


def connected(kind, address):
    socket = context.socket(kind)
    socket.linger = 0
    socket.rcvtimeo = 60_000
    socket.connect(address)
    return socket


class Index:
    """The pages of a server by the page before them, what separates clients, and their tokens."""

    def __init__(self):
        self.pages, self.keys, self.removed = {}, {}, 0

    def follow(self, event):
        if isinstance(event, AllBlocksCleared):
            self.pages, self.keys = {}, {}
        elif isinstance(event, BlockRemoved):
            for name in event.block_hashes:
                del self.pages[self.keys.pop(name)]
                self.removed += 1
        else:
            expect("a block's tokens", (event.block_size, len(event.token_ids)), (PAGE, PAGE * len(event.block_hashes)))
            parent = event.parent_block_hash
            for place, name in enumerate(event.block_hashes):
                key = parent, event.extra_keys[place], tuple(event.token_ids[place * PAGE:(place + 1) * PAGE])
                checks.check(key not in self.pages and name not in self.keys, f"block {name} comes twice")
                self.pages[key], self.keys[name] = name, key
                parent = name

    def cached(self, ids, salt):
        """The tokens of a prompt that the server has. It runs the last one."""
        count, parent = 0, None
        while count + PAGE < len(ids):
            extra = (salt,) if salt and not count else None
            parent = self.pages.get((parent, extra, tuple(ids[count:count + PAGE])))
            if parent is None:
                break
            count += PAGE
        return count


class Router:
    """Follows the events of a server."""

    def __init__(self, publisher, replays):
        self.subscriber, self.replays = connected(zmq.SUB, publisher), connected(zmq.DEALER, replays)
        self.subscriber.subscribe(TOPIC)
        self.index, self.next = Index(), 0

    def replay(self, first):
        """Batches from a number on, which have all that the server's last answer kept."""
        self.replays.send_multipart([b"", first.to_bytes(8, "big")])
        batches = []
        while (frames := self.replays.recv_multipart())[1] != END:
            expect("an empty frame", (len(frames), frames[0]), (3, b""))
            batches.append((int.from_bytes(frames[1], "big"), frames[2]))
        expect("the end of a replay", frames, [b"", END, b""])
        return batches

    def follow(self, batches):
        for number, data in batches:
            expect("the number of a batch", number, self.next)
            batch = DECODER.decode(data)
            expect("the rank", batch.data_parallel_rank, 0)
            for event in batch.events:
                self.index.follow(event)
            self.next = number + 1

    def live(self, count):
        """The next batches as the server publishes them."""
        batches = []
        for _ in range(count):
            topic, number, data = self.subscriber.recv_multipart()
            expect("the topic", topic, TOPIC)
            batches.append((int.from_bytes(number, "big"), data))
        return batches


def addresses(server):
    return re.search(r"kv events on (\S+?)(?:, replays on (\S+))?\n", server.said).groups()


# Prompts of common beginnings, in pages for a part of them.
server = Server(MODEL, "--kv-events", "tcp://127.0.0.1:0", "--kv-events-replay", "tcp://localhost:0", "--kv-events-topic", TOPIC.decode(),
                "--sequences", "2", "--kv-pages", "24")
router = Router(*addresses(server))
draw = random.Random(7)
hits = 0
for number in range(100):
    ids = [(draw_from * place * place + place) % 3000 for draw_from in [draw.randrange(4)] for place in range(draw.randrange(1, 500))]
    ids += [draw.randrange(3000) for _ in range(draw.randrange(90))]
    salt = draw.choice((None, "a", "b"))
    router.follow(router.replay(router.next))
    predicted = router.index.cached(ids, salt)
    hits += predicted > 0
    answer = server.post("/v1/completions", prompt=ids, max_tokens=draw.randrange(1, 80), seed=1, ignore_eos=True, **({"cache_salt": salt} if salt else {}))
    expect(f"prompt {number} of {len(ids)} tokens", answer["usage"]["prompt_tokens_details"]["cached_tokens"], predicted)
checks.check(hits > 25 and router.index.removed > 100, f"the prompts hit {hits} times, and {router.index.removed} blocks are gone")

# The live stream has the same batches as a replay; one that missed some asks for them.
while not router.subscriber.poll(100):
    # Its subscription has not arrived.
    server.post("/v1/completions", prompt=[draw.randrange(3000) for _ in range(70)], max_tokens=1)
router.follow(router.replay(router.next))
late = Router(*addresses(server))
late.follow(late.replay(0))
expect("an index from the beginning", late.index.pages, router.index.pages)
live = router.live(1)
checks.check(dict(live).items() <= dict(late.replay(0)).items(), "a batch that was published is another one in a replay")
expect("a replay behind the last batch", late.replay(2**64 - 1), [])

# What is no request is dropped, and others go on.
for frames in ([b""], [b"x"], [b"", b"123"], [b"", b"123456789"], [b"", b"\0" * 8, b""], [b""] * 40, [b"\0" * 8], [b"", b"x" * 5000]):
    stranger = connected(zmq.DEALER, addresses(server)[1])
    stranger.send_multipart(frames)
    expect(f"an answer to {frames}", stranger.poll(20), 0)
    stranger.close()
expect("a request behind them", len(late.replay(late.next - 1)), 1)

# The end has all that was kept, and a server without events says nothing of them.
server.stop()
checks.check("kv events" not in Server(MODEL).said, "a server without --kv-events has some")


def refused(what, line, *options):
    command = ["qwen-run", "serve", MODEL, "--listen", "127.0.0.1:0", *options]
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=60)
    checks.check(result.returncode == 1 and matches(f"qwen-run: {line}\n", result.stderr), f"{what}: {result.returncode} {result.stderr}")


public = "is reachable by other machines, and events have the tokens of all prompts: it needs 127.0.0.1, or --kv-events-public"
refused("another machine", f"--kv-events tcp://*:5557 {public}", "--kv-events", "tcp://*:5557")
refused("replays of another machine", f"--kv-events-replay tcp://0.0.0.0:0 {public}", "--kv-events", "tcp://127.0.0.1:0", "--kv-events-replay", "tcp://0.0.0.0:0")
refused("no address", "--kv-events inproc://x must be tcp://HOST:PORT with a numeric host, localhost or *, or ipc://PATH", "--kv-events", "inproc://x")
refused("no prefix cache", "--kv-events excludes --no-prefix-cache", "--kv-events", "tcp://127.0.0.1:0", "--no-prefix-cache")
refused("several models", "--kv-events is for one model, {{.*}}", "--kv-events", "tcp://127.0.0.1:0", "--model-idle", "9")
with tempfile.TemporaryDirectory() as folder:
    holder = Server(MODEL, "--kv-events", f"ipc://{folder}/events")
    expect("the file of events", (addresses(holder), pathlib.Path(folder, "events").exists()), ((f"ipc://{folder}/events", None), True))
    taken = Server(MODEL, "--kv-events", "tcp://*:0", "--kv-events-public")
    port = addresses(taken)[0].rsplit(":", 1)[1]
    refused("a taken port", f"--kv-events tcp://0.0.0.0:{port} cannot be used: Address already in use", "--kv-events", f"tcp://0.0.0.0:{port}", "--kv-events-public")
checks.finish()
