"""The embedded calibration text shares no 40 characters with the texts that results are judged by.

  calibration_texts.py TEXTS SHARED

Runs of white space count as one space. Where SHARED, the folder of evaluation data, is missing, only the texts are checked.
"""
import bz2
import io
import json
import pathlib
import sys
import unicodedata
import zipfile

from checks import Checks

TEXTS, SHARED = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
SHARED_CHARACTERS = 40
# Every 40 characters of a text have a whole one of its steps.
STEP = SHARED_CHARACTERS // 2
checks = Checks()


def plain(text):
    return " ".join(text.split())


def strings(value):
    """All strings of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def judging_texts():
    """(name, text) of each text of SHARED that a result is judged by."""
    for path in sorted((SHARED / "data/eval").iterdir()):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    yield f"{path.name}/{name}", archive.read(name).decode(errors="replace")
        elif path.suffix == ".bz2":
            yield path.name, bz2.decompress(path.read_bytes()).decode()
        elif path.suffix == ".jsonl":
            yield path.name, "\n".join(text for line in io.StringIO(path.read_text()) for text in strings(json.loads(line)))
        else:
            yield path.name, path.read_text()
    yield "stories/golden/val.txt", (SHARED / "models/stories/golden/val.txt").read_text()


def same_before(a, b):
    return next((i for i in range(min(len(a), len(b))) if a[-1 - i] != b[-1 - i]), min(len(a), len(b)))


def same_behind(a, b):
    return next((i for i in range(min(len(a), len(b))) if a[i] != b[i]), min(len(a), len(b)))


def shared(text, ours, places):
    """The first characters that `text` shares with `ours`, whose pieces of STEP characters start at `places`."""
    for at in range(0, len(text) - STEP + 1, STEP):
        for place in places.get(text[at:at + STEP], ()):
            before = same_before(text[max(0, at - SHARED_CHARACTERS):at], ours[max(0, place - SHARED_CHARACTERS):place])
            behind = same_behind(text[at:at + 2 * SHARED_CHARACTERS], ours[place:place + 2 * SHARED_CHARACTERS])
            if before + behind >= SHARED_CHARACTERS:
                return text[at - before:at + behind]
    return None


def places_of(ours):
    places = {}
    for i in range(len(ours) - STEP + 1):
        places.setdefault(ours[i:i + STEP], []).append(i)
    return places


texts = {path.stem: path.read_text() for path in sorted(TEXTS.glob("*.txt"))}
checks.check(texts, f"{TEXTS} has no texts")
for name, text in texts.items():
    checks.check(unicodedata.is_normalized("NFC", text), f"{name}.txt is not in NFC")
    checks.check("\r" not in text and text.endswith("\n"), f"{name}.txt has other ends of lines than \\n")
# The check finds what it must.
sample = plain(texts["english"])[1000:1000 + 2 * SHARED_CHARACTERS]
for start in range(SHARED_CHARACTERS):
    hidden = "x" * start + sample[start:start + SHARED_CHARACTERS] + "x"
    checks.check(shared(hidden, sample, places_of(sample)), f"{SHARED_CHARACTERS} shared characters at {start} are not found")
checks.check(not shared("x" + sample[:SHARED_CHARACTERS - 1] + "x", sample, places_of(sample)), "fewer shared characters are found")

if (SHARED / "data/eval").is_dir():
    parts = {name: plain(text) for name, text in texts.items()}
    places = {name: places_of(part) for name, part in parts.items()}
    for source, text in judging_texts():
        text = plain(text)
        for name, part in parts.items():
            found = shared(text, part, places[name])
            checks.check(found is None, f"{name}.txt shares {found!r} with {source}")
else:
    print(f"skipped: the texts to judge by, because {SHARED}/data/eval is missing")
checks.finish()
