"""Checks that what the pages of docs/ name in code spans is there, and that the comment of Manifest.h has all keys of a manifest:
`documents.py [PAGE...]`, by default all pages that people write.

Each identifier in a code span occurs in the sources, in a file's name or in an option, but for those in
test/Inputs/foreign_names.txt, which other programs have; a path with a known ending is the end of a path of a file. Blocks of code are
left out, because most show what a reader adds. A foreign name that no page uses is an error, too.
"""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("bench", "calibration", "cmake", "deploy", "docs", "examples", "export", "include", "lib", "python", "runtime", "test", "tools", "web", ".ci")
# What tools write: pages, data, and the bundle of the page.
LEFT_OUT = ("docs/decisions", "docs/notebook", "docs/images", "test/Inputs/checkpoints", "web/dist", "web/node_modules")
GENERATED = {"dialect.md", "server-options.md"}
SOURCES = re.compile(r"\.(c|h|cpp|def|td|inc|mlir|py|mjs|js|ts|css|html|cmake|txt|test|sh|in|toml|rs|service|conf|json|jsonl)$|/[A-Z]\w+$")
PATH = re.compile(r"[\w./-]*\w\.(?:h|cpp|def|td|py|md|mlir|test|txt|cmake|ts)(?![\w.])")
FOREIGN = ROOT / "test/Inputs/foreign_names.txt"
WITHOUT_WORDS = ("test/Inputs/foreign_names.txt", "test/Integration/documents.test")
WORD = re.compile(r"[A-Za-z_]\w*")
# A part of a pattern is no name.
NAME = re.compile(r"(?<![\w*])[A-Za-z_]\w*(?![\w*])")
MOST_BYTES = 400_000


def files():
    for name in (*FOLDERS, "Makefile", "CMakeLists.txt", "CMakePresets.json"):
        if (ROOT / name).is_file():
            yield name
        for folder, inner, names in os.walk(ROOT / name):
            here = os.path.relpath(folder, ROOT)
            inner[:] = [each for each in inner if f"{here}/{each}" not in LEFT_OUT and each != "__pycache__"]
            yield from (f"{here}/{each}" for each in names)


def known():
    """The paths of the tree, and the words in them and in its sources."""
    paths = sorted(files())
    words = set()
    for path in paths:
        words.update(WORD.findall(path))
        file = ROOT / path
        # The list and the test of this check must not vouch for what they name.
        if SOURCES.search(path) and path not in WITHOUT_WORDS and file.stat().st_size < MOST_BYTES:
            words.update(WORD.findall(file.read_text(errors="replace")))
    # Each option of the server is also a variable.
    words.update("QWEN_RUN_" + option.upper().replace("-", "_")
                 for option in re.findall(r'"([a-z-]+)"', (ROOT / "runtime/server/ServerOptions.def").read_text()))
    return paths, words


def keys_without_comment():
    """The keys that Manifest.cpp reads by their names, but for those that the comment at the start of Manifest.h shows."""
    read = (ROOT / "runtime/artifact/Manifest.cpp").read_text()
    shown = (ROOT / "runtime/artifact/Manifest.h").read_text().partition("#ifndef")[0]
    return sorted(set(re.findall(r'\b(?:at|find)\("(\w+)"\)', read)) - set(re.findall(r'"(\w+)"', shown)))


def spans(page):
    """Line number and text of each code span."""
    text = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for match in re.finditer(r"`((?:[^`\n]|\n(?!\n))+)`", text):
        yield text.count("\n", 0, match.start()) + 1, " ".join(match[1].split())


def main():
    pages = [pathlib.Path(name) for name in sys.argv[1:]]
    written = pages or [page for folder in ("", "stages") for page in sorted((ROOT / "docs" / folder).glob("*.md")) if page.name not in GENERATED]
    paths, words = known()
    foreign = set(re.sub(r"#.*", "", FOREIGN.read_text()).split())
    unused, failures = set(foreign), 0
    ends = {path[i:] for path in paths for i in [0, *(at.end() for at in re.finditer("/", path))]}
    for page in written:
        for line, span in spans(page):
            names, named = NAME.findall(span), [path.removeprefix("../") for path in PATH.findall(span)]
            unused.difference_update(names, named)
            missing = [name for name in names if name not in words and name not in foreign]
            if not missing and not foreign.intersection(names):
                # Paths with a placeholder, beside the repository, and of the machine.
                missing = [path for path in named if path not in ends and path not in foreign and not re.search(r"[A-Z]{4}|^/|^shared/", path)]
            for name in missing:
                failures += 1
                print(f"{page}:{line}: `{span}` names {name}, which the tree does not have")
    for name in sorted(unused if not pages else ()):
        failures += 1
        print(f"{FOREIGN}: no page names {name}")
    for key in keys_without_comment() if not pages else ():
        failures += 1
        print(f"runtime/artifact/Manifest.h: the comment lacks {key}")
    print(f"{len(written)} pages, {failures} failures")
    sys.exit(failures > 0)


main()
