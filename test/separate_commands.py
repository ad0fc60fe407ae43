"""Writes a compilation database in which each source is compiled by itself.

  separate_commands.py BUILD FOLDER

BUILD/compile_commands.json has one command for the sources that QWEN_UNITY unites: a file that CMake writes includes them.
FOLDER/compile_commands.json has that command for each of them. So clang-tidy, which analyses only functions of the file that it
is called for, sees all, and finds sources that lack an include. A source of several targets is there once.
"""
import json
import pathlib
import re
import sys

build, folder = map(pathlib.Path, sys.argv[1:])
commands = {}
for command in json.loads((build / "compile_commands.json").read_text()):
    file = command["file"]
    included = re.findall(r'#include "(.*)"', pathlib.Path(file).read_text()) if "/Unity/unity_" in file else [file]
    for source in included:
        commands.setdefault(source, command | {"file": source, "command": command["command"].replace(file, source)})
folder.mkdir(parents=True, exist_ok=True)
(folder / "compile_commands.json").write_text(json.dumps([*commands.values()], indent=1))
