"""JSON-Schema-Test-Suite (2020-12) against answers with a schema: which schemas are refused, and which documents may be drawn.

  schema_suite.py MODEL TEMPLATE WORKDIR      MODEL is models/stories, compiled; TEMPLATE any chat template; scripted-server must be in PATH

The suite is that of jsonschema's source package on PyPI. A test program writes each document as an answer with the schema; a document that
is not one of the schema must fail. Prints the counts, and the schemas of which such a document was drawn or that were answered with a status of 500.
The status is 1 if there is one.
"""
import collections
import json
import pathlib
import subprocess
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "test/Integration"))
from server import Server  # noqa: E402

MODEL, TEMPLATE, WORK = (pathlib.Path(a) for a in sys.argv[1:])
PACKAGE = "jsonschema==4.26.0"


def suite():
    """The groups of tests by file."""
    WORK.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "jsonschema", "--disable-pip-version-check", "-d", WORK, PACKAGE],
                   check=True)
    with tarfile.open(next(WORK.glob("jsonschema-*.tar.gz"))) as archive:
        for member in archive.getmembers():
            path = pathlib.PurePosixPath(member.name)
            if path.parts[1:5] == ("json", "tests", "draft2020-12", path.name):
                yield path.stem, json.load(archive.extractfile(member))


server = Server(MODEL, program=["scripted-server", MODEL, TEMPLATE])
counts, wrong, refused = collections.Counter(), [], collections.Counter()
for name, groups in sorted(suite()):
    for group in groups:
        counts["schemas"] += 1
        for number, test in enumerate(group["tests"]):
            document = json.dumps(test["data"], ensure_ascii=False)
            server.post("/script", pieces=[document])
            status, _, text = server.send("POST", "/v1/completions", {"prompt": "x", "max_tokens": 900, "guided_json": group["schema"]})
            error = json.loads(text).get("error", {})
            if status >= 500:
                wrong.append(f"{name}: {group['description']}: {status} {text}: {json.dumps(group['schema'])}")
            if error.get("param") == "guided_json" and "satisfy the grammar" not in error["message"]:
                counts["schemas refused"] += 1
                refused[error["message"]] += 1
                break
            if number == 0:
                counts["schemas kept"] += 1
            # An answer ends before the rest of a script where nothing may follow.
            drawn = status == 200 and json.loads(text)["choices"][0]["text"] == document
            counts[f"{'valid' if test['valid'] else 'invalid'} documents {'drawn' if drawn else 'not drawn'}"] += 1
            if drawn and not test["valid"]:
                wrong.append(f"{name}: {group['description']}: {test['description']}: {json.dumps(group['schema'])} {json.dumps(test['data'])}")
server.stop()
for message, count in refused.most_common(20):
    print(f"{count:4} {message}")
for key, count in sorted(counts.items()):
    print(f"{count:5} {key}")
for line in wrong:
    print("drawn though invalid, or a status of 500:", line)
sys.exit(1 if wrong else 0)
