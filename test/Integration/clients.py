"""OpenAI's clients for Python and Node read the answers of qwen-run serve.

  clients.py MODEL PACKAGES      MODEL is models/stories, compiled

Installs the clients in the folder PACKAGES once. Says so and passes where a registry cannot be reached or Node is missing.
"""
import pathlib
import shutil
import subprocess
import sys
import venv

from server import Server

PYTHON_CLIENT, NODE_CLIENT = "openai==3.54.0", "openai@4.104.0"  # the latter is for Node 18 of Debian
HERE = pathlib.Path(__file__).parent


def command(arguments):
    """Whether a command succeeds; else prints its last line."""
    result = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    if result.returncode:
        print((result.stdout + result.stderr).strip().rsplit("\n", 1)[-1])
    return result.returncode == 0


def python_client(packages):
    """The Python program that has the client, or nothing."""
    folder = packages / PYTHON_CLIENT
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        venv.create(folder, clear=True, with_pip=True)
        if not command([python, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", "--retries", "0", PYTHON_CLIENT]):
            return None
        (folder / "done").touch()
    return python


def node_client(packages):
    """The folder that has the client for Node, or nothing."""
    folder = packages / NODE_CLIENT
    if not shutil.which("npm"):
        print("npm is missing")
        return None
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        if not command(["npm", "install", "--silent", "--fetch-retries", "0", "--prefix", folder, NODE_CLIENT]):
            return None
        (folder / "done").touch()
    return folder


model, packages = (pathlib.Path(a).resolve() for a in sys.argv[1:])
server = Server(model)
status = 0
try:
    address = server.address + "/v1"
    if python := python_client(packages):
        status |= subprocess.run([python, HERE / "client.py", address]).returncode
    else:
        print("skipped: no client for Python")
    if node := node_client(packages):
        shutil.copy(HERE / "client.mjs", node)
        status |= subprocess.run(["node", node / "client.mjs", address]).returncode
    else:
        print("skipped: no client for Node")
finally:
    server.stop()
sys.exit(status)
