"""Parts of deploy/ray that need no Ray: folders of killed replicas go, and a stream goes on from another server with the same events.

  ray_parts.py SOURCE MODEL      MODEL is models/stories, compiled
"""
import ast
import collections
import fcntl
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

from checks import Checks
from routed import events_of, ids_of
from server import Server

SOURCE, MODEL = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
checks = Checks()
PARTS = {"FOLDER", "TIMED", "Stream", "locked", "own_folder"}
# Their answers reach the limit of tokens.
STREAMS = (("/v1/messages", {"messages": [{"role": "user", "content": "A king"}], "max_tokens": 300}, b"message_stop"),
           ("/v1/responses", {"input": "A king", "max_output_tokens": 300}, b"response.incomplete"),
           ("/v1/completions", {"prompt": "A king", "max_tokens": 100, "n": 2, "ignore_eos": True}, None))


def parts():
    """The names of PARTS, without the imports of Ray beside them."""
    found = {"collections": collections, "fcntl": fcntl, "os": os, "re": re, "shutil": shutil, "tempfile": tempfile}
    for node in ast.parse((SOURCE / "deploy/ray/qwen_serve.py").read_text()).body:
        name = node.targets[0].id if isinstance(node, ast.Assign) else getattr(node, "name", "")
        if name in PARTS:
            exec(compile(ast.Module([node], []), "qwen_serve.py", "exec"), found)
    return found


def check_folders(own_folder):
    with tempfile.TemporaryDirectory() as place:
        tempfile.tempdir = place
        # A child lives, and another one is killed: its folder goes, and nothing else.
        os.makedirs(f"{place}/other/kept")
        os.symlink(f"{place}/other", f"{place}/qwen-ray-link")
        replicas = [subprocess.Popen([sys.executable, __file__, SOURCE, MODEL, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        names = [replica.stdout.readline().strip() for replica in replicas]
        checks.expect("folders of replicas", {name for name in names if os.path.exists(f"{name}/socket")}, set(names))
        replicas[0].kill()
        replicas[0].wait()
        folder, lock = own_folder()
        checks.expect("folders behind a start", sorted(os.listdir(place)),
                      sorted([*(pathlib.Path(name).name for name in (*names[1:], folder.name)), "other", "qwen-ray-link"]))
        checks.check(os.path.exists(f"{place}/other/kept"), "a start followed a link")
        for replica in replicas[1:]:
            replica.kill()
            replica.wait()
        folder.cleanup()
        os.close(lock)
        tempfile.tempdir = None


def check_streams(stream_of, server):
    rng = random.Random(1)
    for path, body, end in STREAMS:
        first, second = (server.send("POST", path, {"model": MODEL.stem, "stream": True, "temperature": 1, "seed": 6} | body)[2].encode() for _ in range(2))
        checks.check(first.count(b"\n\n") > 100, f"a short stream of {path}: {first[-500:]}")
        for cut in [0, 5, len(first) - 30, len(first), *(rng.randrange(len(first)) for _ in range(10))]:
            stream, middle = stream_of(), rng.randrange(len(second))
            stream.begin()
            found = stream.take(first[:cut])
            stream.begin()
            found += stream.take(second[:middle]) + stream.take(second[middle:])
            checks.check(events_of(found) == events_of(first), f"a stream of {path} that ended at {cut} went on otherwise")
            checks.check(not end or found.count(b"event: " + end) == 1, f"a stream of {path} has not one end")
            checks.expect(f"ids of a stream of {path} that ended at {cut}", ids_of(found), ids_of(first))


if len(sys.argv) > 3:
    # A replica: it holds its folder until it is killed.
    tempfile.tempdir = sys.argv[3]
    own, _ = parts()["own_folder"]()
    pathlib.Path(own.name, "socket").touch()
    print(own.name, flush=True)
    sys.stdin.read()
    os._exit(0)
check_folders(parts()["own_folder"])
direct = Server(MODEL)
check_streams(parts()["Stream"], direct)
direct.stop()
checks.finish()
