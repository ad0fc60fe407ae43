"""`--help` says of every option what stands without it, and shows many options in groups.

  help.py
"""
import re

from checks import Checks, run

# More options than that stand in groups.
MOST_IN_ONE_GROUP = 10
COLUMN = 30
checks = Checks()


def entries(text):
    """The first column and the help of each option. Help stands beside it or, where that is too long, below it."""
    lines = text.splitlines() + [""]
    for line, following in zip(lines, lines[1:]):
        if line.startswith("  -"):
            below = following.startswith(" " * COLUMN)
            yield (line.strip(), following.strip()) if below else (line[:COLUMN].strip(), line[COLUMN:])


def check_help(*command):
    """Checks the help of a command and of the commands that it lists."""
    text = run([*command, "--help"])
    name = " ".join(command)
    options = list(entries(text))
    headings = {heading for heading, first in re.findall(r"^(\S.*):\n  (\S)", text, re.MULTILINE) if first == "-"} - {"Options"}
    checks.check(len(options) > 0, f"{name}: no options")
    for head, help_text in options:
        # "-n,--count INT=5 Needs: --other", "--flag Excludes: --other", "--lora PATH[=SCALE] ...", "--calibrate [=FILE]".
        words = re.sub(r" \(Env:\w+\)| (Needs|Excludes): .*", "", head).split()
        if len(words) == 1 or words[1].startswith("[="):
            continue
        has_default = "=" in re.sub(r"\{.*?\}|\[.*?\]|\w+=(FORMAT|FLOAT)", "", words[1])
        checks.check(has_default or "REQUIRED" in words or "default" in help_text, f"{name} {words[0]}: {help_text!r} says no default")
    checks.check(len(options) <= MOST_IN_ONE_GROUP or len(headings) > 1, f"{name}: {len(options)} options in the groups {headings}")
    _, _, commands = text.partition("\nSubcommands:\n")
    for each in re.findall(r"^  (\w+) ", commands, re.MULTILINE):
        check_help(*command, each)


check_help("qwen-run")
check_help("qwen-opt")
checks.finish()
