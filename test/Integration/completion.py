"""The scripts of `completion` load in bash, zsh and fish and complete commands, options, their names and files; manual pages have what the
help has, and no warning of mandoc.

  completion.py WORKDIR
"""
import concurrent.futures
import itertools
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import time

from checks import Checks, run

WORK = pathlib.Path(sys.argv[1])
checks = Checks()

# A function of the program's name shows the arguments that it gets. bash and fish read no file of the user; zsh needs its completion system.
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'bind "set bell-style none"', "%s() { printf 'GOT<%%s>\\n' \"$*\"; }"),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D", "%s() { printf 'GOT<%%s>\\n' \"$*\"; }"),
    "fish": (["fish", "--no-config", "-i"], "true", "function %s; printf 'GOT<%%s>\\n' \"$argv\"; end"),
}
# What is typed before the tab, and the arguments that come of it.
CASES = {
    "qwen-run": {"gener": "generate", "generate --see": "--seed", "bench m.qwen --check ba": "background", "generate m.qwen --check=ba": "--check=background",
                 "eval m.qwen --tasks winog": "winogrande", "logits m.qwen -o outf": "outfile.npy", "completion zs": "zsh", "bench outf": "outfile.npy",
                 # A colon in an earlier word, commands of a command, and a command that help does not show; neither takes files.
                 "chat QWEN/m:a --see": "--seed", "chat m --check=ba": "--check=background", "cache li": "list", "cache pa": "path", "cache list --js": "--json",
                 "cache prune --max": "--max-size", "cache outf": "outf", "cache path outf": "outf", "ma": "man", "man --he": "--help", "man outf": "outf"},
    "qwen-opt": {"repo": "report", "outf": "outfile.npy", "m --quanti": "--quantizer", "m --weights q4_m_12": "q4_m_128",
                 "m --target sapph": "sapphirerapids", "m --lora outf": "outfile.npy", "report m --gh": "--ghz",
                 # bash makes three words of a:b.
                 "m --prune lay": "layers:", "m --prune=sho": "--prune=shortgpt:", "m --prune=sleb:": "--prune=sleb:", "m --prune layers:outf": "layers:outf",
                 "m --prune layers:3 --quanti": "--quantizer", "m --rope-scaling yar": "yarn:", "ma": "man", "man outf": "outf"},
}


class Terminal:
    """A shell that runs in a terminal."""

    def __init__(self, command, folder):
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.environ.update(TERM="vt100", HOME=str(folder), XDG_CONFIG_HOME=str(folder), XDG_DATA_HOME=str(folder), PS1="$ ")
            os.execvp(command[0], command)
        self.text = ""

    def expect(self, pattern, seconds=60):
        """The match of `pattern` in what is written from now on, or None."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            if not select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0]:
                return None
            try:
                data = os.read(self.terminal, 4096)
            except OSError:
                return None
            self.text += data.decode(errors="replace")
        self.text = self.text[found.end():]
        return found

    def send(self, text):
        os.write(self.terminal, text.encode())

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.process, 0)


def completes(shell, program):
    command, prepare, function = SHELLS[shell]
    script = WORK / f"{program}.{shell}"
    script.write_text(run([program, "completion", shell]))
    terminal = Terminal(command, WORK)
    # The terminal echoes the command, so the command must not contain the text READY.
    terminal.send(f"{prepare}\nsource {script.name}\n{function % program}\nprintf 'REA%s\\n' DY\n")
    checks.check(terminal.expect("READY"), f"{shell} does not load the script of {program}: {terminal.text!r}")
    for typed, expected in CASES[program].items():
        terminal.send(f"{program} {typed}\t")
        time.sleep(0.2)
        terminal.send("\n")
        found = terminal.expect(r"GOT<([^>]*)>")
        words = found[1].split() if found else []
        checks.check(words and words[-1] == expected, f"{shell}: {program} {typed} becomes {words}: {terminal.text[-300:]!r}")
    terminal.send("exit\n")
    terminal.close()


def manual(program):
    page = WORK / f"{program}.1"
    page.write_text(run([program, "man"]))
    lint = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], capture_output=True, text=True).stdout
    # A page without a date is the same whenever it is made.
    warnings = [line for line in lint.splitlines() if line and "missing date" not in line]
    checks.check(not warnings, f"{program}: {warnings}")
    # Bold letters are written twice.
    text = re.sub(".\b", "", run(["mandoc", "-Tascii", "-Owidth=200", page]))
    helps = []
    # The commands of a command come later.
    commands = [[program]]
    for command in commands:
        helps.append(run([*command, "--help"]))
        commands += [[*command, each] for each in re.findall(r"^  (\w+) ", helps[-1].partition("Subcommands:")[2], re.MULTILINE)]
        checks.check(" ".join(command) in text, f"{' '.join(command)} is not in the manual page")
    options = {option for text in helps for option in re.findall(r"^  (?:-\w,)?(--[\w-]+)", text, re.MULTILINE)}
    checks.check(len(options) > 20, f"{program}: {options}")
    for option in options:
        checks.check(option in text, f"{option} is not in the manual page of {program}")


# A shell mostly waits.
with concurrent.futures.ThreadPoolExecutor(len(CASES) * len(SHELLS)) as pool:
    list(pool.map(lambda pair: completes(*pair), itertools.product(SHELLS, CASES)))
for name in CASES:
    manual(name)
checks.finish()
