"""Runs clang-tidy on the sources of the programs.

  tidy.py SOURCE BUILD      the folder of the project and one of its builds

Sources that QWEN_UNITY unites in BUILD are read together, and so are the folders of TOGETHER and the headers that they include. BUILD/tidy
has a file for each of CMake's, with the text of the sources, and a finding in it is reported at its place in the source. clang-format, not
llvm-include-order, keeps the order of includes there. Such a build is that of .ci/run: without the analyzer, which takes six tenths of the
time, and one slow check. Where each source is read by itself, the analyzer stops after 75,000 states of a function (docs/testing.md). With
QWEN_ONLY_CHANGED, clang-tidy reads the sources alone that the commits of the last day changed, or that include what they changed (changes.py).
"""
import json
import os
import pathlib
import re
import subprocess
import sys

import changes

SOURCE, BUILD = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
# Google Benchmark's header, which the other file of bench includes, has a leak by the analyzer.
PROGRAMS = f"{SOURCE}/(bench/ModelKernel|calibration|examples|export|lib|runtime|tools)/"
FOLDER = BUILD / "tidy"
# The analyzer takes constants of templates and Boost's coroutines for faults if it reads these with other sources.
APART = tuple(f"{SOURCE}/{path}" for path in ("lib/Numerics/", "runtime/server/http/Connection.cpp", "runtime/server/http/HttpServer.cpp"))
# clang-tidy reads the folders of a row together, with the command of the first: they include the same headers, which take most of its time.
# No two of them may declare the same name.
TOGETHER = (
    ("lib/CodeGen/Lower", "lib/CodeGen/Products", "lib/Dialect", "lib/Import/Models", "lib/Transforms"),
    ("lib/CodeGen/Artifact", "lib/Compiler", "lib/CostModel"),
    ("runtime/engine", "runtime", "runtime/artifact", "runtime/engine/samplers", "runtime/model", "runtime/text"),
)
# Of each of them: its group, and its number there.
GROUPS = {f"{SOURCE}/{name}": (names, rank) for names in TOGETHER for rank, name in enumerate(names)}

CHANGED = changes.changed_files() if "QWEN_ONLY_CHANGED" in os.environ else None
INCLUDING = None if CHANGED is None else {f"{SOURCE}/{path}" for path in changes.including(CHANGED)}

database = json.loads((BUILD / "compile_commands.json").read_text())
united = any("/Unity/unity_" in command["file"] for command in database)
commands, places = {}, {}


def own(command):
    """`command` without precompiled headers, which another build may lack."""
    return command | {"command": re.sub(r" -Xclang -include(-pch)? -Xclang \S+", "", command["command"])}


def is_read(source):
    return re.match(PROGRAMS, source) and (INCLUDING is None or source in INCLUDING)


def add(source, command):
    """A source of several targets is analysed once."""
    if is_read(source):
        commands.setdefault(source, command)


def folder(source):
    return str(pathlib.Path(source).parent)


def join(sources, number, command):
    """Adds a file with the text of `sources`."""
    joined, lines = FOLDER / f"{number}.cpp", []
    for source in sources:
        text = pathlib.Path(source).read_text().splitlines()
        lines += text
        places.setdefault(str(joined), []).extend((source, i + 1) for i in range(len(text)))
    joined.write_text("\n".join(lines) + "\n")
    quoted = "".join(f" -iquote {name}" for name in dict.fromkeys(map(folder, sources))) + " -c "
    commands[str(joined)] = command | {
        "file": str(joined), "command": command["command"].replace(command["file"], str(joined)).replace(" -c ", quoted)}


def place(match):
    return "{}:{}".format(*places[match[1]][int(match[2]) - 1])


FOLDER.mkdir(parents=True, exist_ok=True)
done, joined = set(), {}
for number, command in enumerate(map(own, database)):
    file = command["file"]
    if "/Unity/unity_" in file:
        sources = re.findall(r'#include "(.*)"', pathlib.Path(file).read_text())
    elif united and folder(file) in GROUPS:
        # It takes too long to be compiled with the others of its folder.
        sources = [file]
    else:
        add(file, command)
        continue
    sources = [source for source in sources if is_read(source) and source not in done]
    done.update(sources)
    for source in filter(lambda source: source.startswith(APART), sources):
        add(source, command | {"file": source, "command": command["command"].replace(file, source)})
    together = [source for source in sources if not source.startswith(APART)]
    if together:
        group, rank = GROUPS.get(folder(together[0]), (number, 0))
        joined.setdefault(group, []).append((rank, number, together, command))
for parts in map(sorted, joined.values()):
    _, number, _, command = parts[0]
    join([source for part in parts for source in part[2]], number, command)
# The longest first, so that the last one does not run alone.
ordered = sorted(commands.values(), key=lambda command: -pathlib.Path(command["file"]).stat().st_size)
(FOLDER / "compile_commands.json").write_text(json.dumps(ordered))
(FOLDER / ".clang-tidy").write_text("""InheritParentConfig: true
Checks: -llvm-include-order
CheckOptions:
  # It would follow main into all sources of a tool.
  bugprone-exception-escape.CheckMain: false
""")
if not commands:
    sys.exit(print("no source to read: the commits of the last day changed none"))
if united:
    # The other check takes half of the time of all checks.
    analyzer = ["-checks=-clang-analyzer-*,-bugprone-forward-declaration-namespace"]
else:
    analyzer = [f"-extra-arg={argument}" for argument in ("-Xclang", "-analyzer-config", "-Xclang", "max-nodes=75000")]
process = subprocess.Popen(["run-clang-tidy-22", "-quiet", "-p", FOLDER, *analyzer, *sys.argv[3:]], stdout=subprocess.PIPE, text=True)
for line in process.stdout:
    print(re.sub(rf"({FOLDER}/\d+\.cpp):(\d+)", place, line), end="", flush=True)
sys.exit(process.wait())
