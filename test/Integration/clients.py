"""OpenAI's clients for Python and Node read the answers of qwen-run serve, and schemathesis finds nothing that /openapi.json says wrongly.

  clients.py MODEL PACKAGES [EXAMPLES]      MODEL is models/stories, compiled

schemathesis sends EXAMPLES requests to each path, 5 by default. Installs the clients in the folder PACKAGES once. Says so and passes where a registry cannot be reached or Node is missing.
"""
import os
import pathlib
import shutil
import subprocess
import sys

from packages import node_package, python_with
from server import Server

PYTHON_CLIENT, NODE_CLIENT = "openai==3.54.0", "openai@4.104.0"  # the latter is for Node 18 of Debian
SCHEMATHESIS = "schemathesis==4.32.5"
HERE = pathlib.Path(__file__).parent

model, packages = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
examples = sys.argv[3] if len(sys.argv) > 3 else "5"
server = Server(model, env={**os.environ, "QWEN_RUN_API_KEY": "secret"})
status = 0
try:
    address = server.address + "/v1"
    if python := python_with(PYTHON_CLIENT, packages):
        status |= subprocess.run([python, HERE / "client.py", address]).returncode
    else:
        print("skipped: no client for Python")
    if node := node_package(NODE_CLIENT, packages):
        shutil.copy(HERE / "client.mjs", node)
        status |= subprocess.run(["node", node / "client.mjs", address]).returncode
    else:
        print("skipped: no client for Node")
    if python := python_with(SCHEMATHESIS, packages):
        status |= subprocess.run([python.with_name("schemathesis"), "run", server.address + "/openapi.json", "--checks", "all",
                                  "--phases", "examples,coverage,fuzzing", "--max-examples", examples, "--seed", "1", "--no-shrink",
                                  "--request-timeout", "120", "--max-response-time", "120", "--warnings", "off", "-H", "Authorization: Bearer secret"],
                                 env={**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(HERE)}).returncode
    else:
        print("skipped: no schemathesis")
finally:
    server.stop()
sys.exit(status)
