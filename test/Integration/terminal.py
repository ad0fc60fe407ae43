"""Programs on terminals of tmux: keys in, screens out."""
import atexit
import os
import shlex
import subprocess
import sys
import time


class Terminals:
    """A server of tmux without the user's configuration."""

    def __init__(self, folder, environment):
        # A socket has a short path.
        self.socket = f"/tmp/qwen-tmux-{os.getpid()}"
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "SHELL": "/bin/sh", **environment}
        atexit.register(lambda: subprocess.run(["tmux", "-S", self.socket, "kill-server"], stderr=subprocess.DEVNULL))

    def tmux(self, *command):
        result = subprocess.run(["tmux", "-u", "-S", self.socket, "-f", "/dev/null", *command], capture_output=True, text=True, env=self.environment)
        if result.returncode:
            sys.exit(f"tmux {command}: {result.stderr}")
        return result.stdout


class Terminal:
    """A program on a terminal of `width` columns. Its last line is "status N" when it has ended."""

    def __init__(self, terminals, name, command, width=80, height=24, **environment):
        self.terminals, self.name = terminals, name
        variables = "".join(f"{key}={shlex.quote(value)} " for key, value in environment.items())
        program = " ".join(shlex.quote(str(part)) for part in command)
        terminals.tmux("new-session", "-d", "-s", name, "-x", str(width), "-y", str(height),
                       f"trap : INT; env {variables}{program}; echo status $?; exec sleep 1000")

    def keys(self, *keys):
        """Keys by tmux's names."""
        self.terminals.tmux("send-keys", "-t", self.name, *keys)

    def type(self, text):
        self.terminals.tmux("send-keys", "-t", self.name, "-l", text)

    def paste(self, text, bracketed=True, raw=False):
        """As terminals paste: bracketed if the program wants it, with a return for each newline. "raw" leaves newlines as they are."""
        self.terminals.tmux("set-buffer", text)
        self.terminals.tmux("paste-buffer", *["-p"] * bracketed, *["-r"] * raw, "-t", self.name)

    def text(self, *options):
        """All lines from the first one, without spaces at their ends. "-e": with letters' attributes."""
        return self.terminals.tmux("capture-pane", "-p", "-S", "-", "-t", self.name, *options).rstrip("\n")

    def wait(self, condition):
        """Waits until the text fulfils a condition; returns it."""
        for _ in range(2400):
            text = self.text()
            if condition(text):
                return text
            if "\nstatus " in text:
                break
            time.sleep(0.025)
        sys.exit(f"{self.name}: the terminal has\n{text}")
